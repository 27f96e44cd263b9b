// Copies the pixels under every tap of every window: images (planes, height, width) become columns (planes, taps,
// windows), 0 beyond the edges. An invocation copies one.
import package::lib::windows::{Windows, pixel_under};

@group(0) @binding(0) var<storage, read> images: array<f32>;
@group(0) @binding(1) var<storage, read_write> columns: array<f32>;
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
    let tap = row / p.out_height % (p.kernel_height * p.kernel_width);
    let plane = row / p.out_height / (p.kernel_height * p.kernel_width);
    let y = pixel_under(row % p.out_height, tap / p.kernel_width, p.stride_height, p.dilation_height, p.top);
    let x = pixel_under(at % p.out_width, tap % p.kernel_width, p.stride_width, p.dilation_width, p.left);
    var value = 0.0;
    if y < p.height && x < p.width {
        value = images[p.first + (plane * p.height + y) * p.width + x];
    }
    columns[at] = value;
}
