// Copies the pixels under every tap of every window: images (planes, height, width) become columns (planes, taps,
// windows), 0 beyond the edges. An invocation copies those of one window: to find a window takes four divisions, each of
// which takes a software adapter longer than a copy.
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
    let windows = p.out_height * p.out_width;
    let plane = at / windows;
    let window = at % windows;
    let first = p.first + plane * p.height * p.width;
    var target_at = plane * p.kernel_height * p.kernel_width * windows + window;
    for (var tap_y = 0u; tap_y < p.kernel_height; tap_y++) {
        let y = pixel_under(window / p.out_width, tap_y, p.stride_height, p.dilation_height, p.top);
        for (var tap_x = 0u; tap_x < p.kernel_width; tap_x++) {
            let x = pixel_under(window % p.out_width, tap_x, p.stride_width, p.dilation_width, p.left);
            var value = 0.0;
            if y < p.height && x < p.width {
                value = images[first + y * p.width + x];
            }
            columns[target_at] = value;
            target_at += windows;
        }
    }
}
