// Where the largest or the smallest element of the middle axis of (outer, length, inner) stands, or that element. Of equal
// ones the first; a NaN comes before all. In chunks of `chunk` elements: the result is (outer, ceil(count / chunk), inner),
// and a long axis takes further passes, over the places that the one before has found. A workgroup
// finds `groups` of them.
import package::lib::math::is_nan;
import package::lib::order::order_key;

struct ExtremumParameters {
    outer: u32, length: u32, inner: u32, count: u32, chunk: u32, // `count` of the axis are looked at: `length`, or places
    kind: u32, // of the elements: 0 for floats, 1 for signed integers, 2 for unsigned ones
    is_smallest: u32, has_places: u32, gives_value: u32, groups: u32,
}

@group(0) @binding(0) var<storage, read> values: array<u32>;
@group(0) @binding(1) var<storage, read> places: array<u32>;
@group(0) @binding(2) var<storage, read_write> result: array<u32>;
@group(0) @binding(3) var<uniform> parameters: ExtremumParameters;

const WORKGROUP: u32 = 64u;
const LOWEST: i32 = -2147483648;
const HIGHEST: i32 = 2147483647;
const NOWHERE: u32 = 0xffffffffu;

var<workgroup> ranks: array<i32, 64>;
var<workgroup> indices: array<u32, 64>;

// The one that is looked for has the highest rank.
fn rank_of(bits: u32) -> i32 {
    var key = bitcast<i32>(bits);
    if parameters.kind == 0u {
        key = order_key(bitcast<f32>(bits));
    } else if parameters.kind == 2u {
        key = bitcast<i32>(bits ^ 0x80000000u);
    }
    let rank = select(key, ~key, parameters.is_smallest == 1u);
    return select(rank, HIGHEST, parameters.kind == 0u && is_nan(bitcast<f32>(bits)));
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Neighbouring invocations read neighbours, of a row or of columns.
    let groups = parameters.groups;
    let group_size = WORKGROUP / groups;
    let position = select(lane % groups * group_size + lane / groups, lane, parameters.inner == 1u);
    let member = position % group_size;
    let at_result = (workgroup.x + workgroup.y * grid.x) * groups + position / group_size;
    let chunks = (parameters.count + parameters.chunk - 1u) / parameters.chunk;
    let column = at_result % parameters.inner;
    let row = at_result / (parameters.inner * chunks);
    let first = (at_result / parameters.inner) % chunks * parameters.chunk;
    let end = select(first, min(first + parameters.chunk, parameters.count), row < parameters.outer);
    let base = row * parameters.length * parameters.inner + column;

    var rank = LOWEST;
    var index = NOWHERE;
    for (var at = first + member; at < end; at += group_size) {
        var candidate = at;
        if parameters.has_places == 1u {
            candidate = places[(row * parameters.count + at) * parameters.inner + column];
        }
        let rank_here = rank_of(values[base + candidate * parameters.inner]);
        if rank_here > rank || index == NOWHERE {
            rank = rank_here;
            index = candidate;
        }
    }
    ranks[position] = rank;
    indices[position] = index;
    workgroupBarrier();
    for (var width = group_size / 2u; width > 0u; width = width / 2u) {
        if member < width {
            let other = ranks[position + width];
            if other > ranks[position] || (other == ranks[position] && indices[position + width] < indices[position]) {
                ranks[position] = other;
                indices[position] = indices[position + width];
            }
        }
        workgroupBarrier();
    }
    if member == 0u && row < parameters.outer {
        index = indices[position];
        if parameters.gives_value == 1u {
            result[at_result] = values[base + index * parameters.inner];
        } else {
            result[at_result] = index;
        }
    }
}
