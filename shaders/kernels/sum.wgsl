// Sums over the middle axis of (outer, length, inner), in chunks of `chunk` elements: the result is
// (outer, ceil(length / chunk), inner). A long axis takes two passes. One workgroup computes `teams` sums side by side.
import package::lib::workgroup::{TURN, WORKGROUP};
@if(SUBGROUPS) import package::lib::subgroups::total_of_team;
@else import package::lib::workgroup::total_of_team;

struct SumParameters { outer: u32, length: u32, inner: u32, chunk: u32, teams: u32 }

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
    // Neighbouring invocations read neighbours, of a row or of columns. A team has as many of each turn.
    let teams = parameters.teams;
    let each = min(WORKGROUP, TURN) / teams;
    let turn = lane / TURN;
    let number = lane % TURN;
    let seat = select(number % teams * each + number / teams, number, parameters.inner == 1u);
    let member = turn * each + seat % each;
    let result = (workgroup.x + workgroup.y * grid.x) * teams + seat / each;
    let chunks = (parameters.length + parameters.chunk - 1u) / parameters.chunk;
    let column = result % parameters.inner;
    let chunk = (result / parameters.inner) % chunks;
    let row = result / (parameters.inner * chunks);
    let is_inside = row < parameters.outer;
    let first = chunk * parameters.chunk;
    let end = min(first + parameters.chunk, parameters.length);

    var sum = 0.0;
    if is_inside {
        for (var at = first + member; at < end; at += WORKGROUP / teams) {
            sum += loaded((row * parameters.length + at) * parameters.inner + column);
        }
    }
    sum = total_of_team(sum, turn * TURN + seat, WORKGROUP, teams);
    if member == 0u && is_inside {
        stored(sum, result);
    }
}
