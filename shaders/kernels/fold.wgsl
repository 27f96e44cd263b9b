// Adds up what the taps of all windows hold for a pixel: the reverse of unfold.wgsl. An invocation makes one pixel.
import package::lib::windows::{Windows, is_there, next_tap, step_of, window_over};

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
    let pixel = at % (p.width * p.height);
    let down = step_of(p.stride_height, p.dilation_height);
    let across = step_of(p.stride_width, p.dilation_width);
    let left = window_over(pixel % p.width, p.stride_width, p.left);
    var row = window_over(pixel / p.width, p.stride_height, p.top);
    var tap_at = at / (p.width * p.height) * p.plane_stride;
    var sum = 0.0;
    for (var tap_y = 0u; tap_y < p.kernel_height; tap_y++) {
        var column = left;
        for (var tap_x = 0u; tap_x < p.kernel_width; tap_x++) {
            if is_there(row, p.out_height) && is_there(column, p.out_width) {
                sum += columns[tap_at + row.number * p.out_width + column.number];
            }
            tap_at += p.tap_stride;
            column = next_tap(column, across, p.stride_width);
        }
        row = next_tap(row, down, p.stride_height);
    }
    images[p.first + at] = sum;
}
