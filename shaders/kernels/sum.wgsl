// Sums over the middle axis of (outer, length, inner), in chunks of `chunk` elements: the result is
// (outer, ceil(length / chunk), inner). A long axis takes two passes. One workgroup computes one sum.
import package::lib::workgroup::{total};

struct SumParameters { outer: u32, length: u32, inner: u32, chunk: u32 }

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
@group(0) @binding(2) var<uniform> parameters: SumParameters;

override WORKGROUP: u32 = 64u; // a tuner may set it

// What comes before a sum, and what follows it, may be fused with it here.
fn loaded(at: u32) -> f32 {
    return values[at];
}

fn stored(value: f32, at: u32) {
    sums[at] = value;
}

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let result = workgroup.x + workgroup.y * grid.x;
    let chunks = (parameters.length + parameters.chunk - 1u) / parameters.chunk;
    let column = result % parameters.inner;
    let chunk = (result / parameters.inner) % chunks;
    let row = result / (parameters.inner * chunks);
    let is_inside = row < parameters.outer;
    let first = chunk * parameters.chunk;
    let end = min(first + parameters.chunk, parameters.length);

    var sum = 0.0;
    if is_inside {
        for (var at = first + lane; at < end; at += WORKGROUP) {
            sum += loaded((row * parameters.length + at) * parameters.inner + column);
        }
    }
    sum = total(sum, lane, WORKGROUP);
    if lane == 0u && is_inside {
        stored(sum, result);
    }
}
