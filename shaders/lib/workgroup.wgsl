// Sums and maxima over the invocations of a workgroup, for cooperative kernels. All invocations call, and all get the
// result. There are a power of two up to 64, or any number from 64 to 256: these are combined in passes of 64, since
// browsers on a software adapter take long to compile large arrays.
//
// The invocations of a pass may form groups, a power of two of neighbours each, which get a result of their own: for rows
// too short to occupy a workgroup. Barriers are few, since such an adapter takes long for each: a group of up to eight
// takes two.
override WORKGROUP: u32 = 64u; // invocations of a workgroup of the kernels that import it; a tuner may set it

const PASS_INVOCATIONS: u32 = 64u;
const HEADS: u32 = 8u;

// Each invocation is a group of its own, as where `groups` is 64: without barriers and memory, which cost a software
// adapter more than rows that are not shared.
override ALONE: bool = false;

var<workgroup> partial: array<f32, 64>;

fn combined(a: f32, b: f32, takes_largest: bool) -> f32 {
    return select(a + b, max(a, b), takes_largest);
}

fn reduced(value: f32, lane: u32, invocations: u32, groups: u32, takes_largest: bool) -> f32 {
    if ALONE {
        return value;
    }
    if lane < PASS_INVOCATIONS {
        partial[lane] = value;
    }
    workgroupBarrier();
    for (var first = PASS_INVOCATIONS; first < invocations; first += PASS_INVOCATIONS) {
        if lane >= first && lane < first + PASS_INVOCATIONS {
            partial[lane - first] = combined(partial[lane - first], value, takes_largest);
        }
        workgroupBarrier();
    }
    let group_size = min(invocations, PASS_INVOCATIONS) / groups;
    let first = lane % PASS_INVOCATIONS / group_size * group_size;
    if group_size > HEADS {
        if lane - first < HEADS {
            for (var other = lane + HEADS; other < first + group_size; other += HEADS) {
                partial[lane] = combined(partial[lane], partial[other], takes_largest);
            }
        }
        workgroupBarrier();
    }
    var result = partial[first];
    for (var other = first + 1u; other < first + min(group_size, HEADS); other++) {
        result = combined(result, partial[other], takes_largest);
    }
    workgroupBarrier();
    return result;
}

fn total(value: f32, lane: u32, invocations: u32) -> f32 {
    return reduced(value, lane, invocations, 1u, false);
}

fn largest(value: f32, lane: u32, invocations: u32) -> f32 {
    return reduced(value, lane, invocations, 1u, true);
}

// Of the group of the invocation.
fn total_of_group(value: f32, lane: u32, invocations: u32, groups: u32) -> f32 {
    return reduced(value, lane, invocations, groups, false);
}

fn largest_of_group(value: f32, lane: u32, invocations: u32, groups: u32) -> f32 {
    return reduced(value, lane, invocations, groups, true);
}
