// Sums over the middle axis of (outer, length, inner), in chunks of `chunk` elements: the result is
// (outer, ceil(length / chunk), inner). A long axis takes two passes. One workgroup computes `groups` sums side by side.
import package::lib::workgroup::{PASS_INVOCATIONS, WORKGROUP};
@if(SUBGROUPS) import package::lib::subgroups::total_of_group;
@else import package::lib::workgroup::total_of_group;

struct SumParameters { outer: u32, length: u32, inner: u32, chunk: u32, groups: u32 }

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
@group(0) @binding(2) var<uniform> parameters: SumParameters;

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
    // Neighbouring invocations read neighbours, of a row or of columns. A group has as many of each pass.
    let groups = parameters.groups;
    let per_pass = min(WORKGROUP, PASS_INVOCATIONS) / groups;
    let pass_number = lane / PASS_INVOCATIONS;
    let number = lane % PASS_INVOCATIONS;
    let position = select(number % groups * per_pass + number / groups, number, parameters.inner == 1u);
    let member = pass_number * per_pass + position % per_pass;
    let result = (workgroup.x + workgroup.y * grid.x) * groups + position / per_pass;
    let chunks = (parameters.length + parameters.chunk - 1u) / parameters.chunk;
    let column = result % parameters.inner;
    let chunk = (result / parameters.inner) % chunks;
    let row = result / (parameters.inner * chunks);
    let is_inside = row < parameters.outer;
    let first = chunk * parameters.chunk;
    let end = min(first + parameters.chunk, parameters.length);

    var sum = 0.0;
    if is_inside {
        for (var at = first + member; at < end; at += WORKGROUP / groups) {
            sum += loaded((row * parameters.length + at) * parameters.inner + column);
        }
    }
    sum = total_of_group(sum, pass_number * PASS_INVOCATIONS + position, WORKGROUP, groups);
    if member == 0u && is_inside {
        stored(sum, result);
    }
}
