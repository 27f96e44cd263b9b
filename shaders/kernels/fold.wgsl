// Adds up what the taps of all windows hold for a pixel: the reverse of unfold.wgsl. An invocation makes one pixel.
import package::lib::windows::{Windows, window_over};

@group(0) @binding(0) var<storage, read> columns: array<f32>;
@group(0) @binding(1) var<storage, read_write> images: array<f32>;
@group(0) @binding(2) var<uniform> p: Windows;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let at = (workgroup.x + workgroup.y * grid.x) * 256u + lane;
    if at >= p.size {
        return;
    }
    let y = at / p.width % p.height;
    let first = at / (p.width * p.height) * p.plane_stride;
    var sum = 0.0;
    for (var tap_y = 0u; tap_y < p.kernel_height; tap_y++) {
        let row = window_over(y, tap_y, p.stride_height, p.dilation_height, p.top);
        for (var tap_x = 0u; tap_x < p.kernel_width; tap_x++) {
            let column = window_over(at % p.width, tap_x, p.stride_width, p.dilation_width, p.left);
            if row < p.out_height && column < p.out_width {
                let tap = tap_y * p.kernel_width + tap_x;
                sum += columns[first + tap * p.tap_stride + row * p.out_width + column];
            }
        }
    }
    images[p.first + at] = sum;
}
