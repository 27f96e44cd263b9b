// Adds up the pixels of each window; there are none beyond the edges. An invocation makes the sum of one window.
import package::lib::windows::{Windows, pixel_under};

@group(0) @binding(0) var<storage, read> images: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
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
    let row = at / p.out_width;
    let plane = row / p.out_height;
    var sum = 0.0;
    for (var tap_y = 0u; tap_y < p.kernel_height; tap_y++) {
        let y = pixel_under(row % p.out_height, tap_y, p.stride_height, p.dilation_height, p.top);
        for (var tap_x = 0u; tap_x < p.kernel_width; tap_x++) {
            let x = pixel_under(at % p.out_width, tap_x, p.stride_width, p.dilation_width, p.left);
            if y < p.height && x < p.width {
                sum += images[(plane * p.height + y) * p.width + x];
            }
        }
    }
    sums[at] = sum;
}
