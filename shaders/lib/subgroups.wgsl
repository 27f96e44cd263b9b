// The functions of lib/workgroup.wgsl by subgroups. The values of a subgroup are combined by one built-in function,
// then one value of each subgroup in workgroup memory, with two barriers. The device chooses the order in which a
// subgroup adds up, and the driver the size of subgroups, some drivers for each kernel.
//
// A workgroup is one group, since WGSL does not say which neighbours are in one subgroup: so `groups` is not used.
import package::lib::workgroup::{WORKGROUP, combined};

// The combined value of a subgroup and the number of its invocations, at the index of its first invocation. Elsewhere
// the number is 0.
var<workgroup> of_subgroups: array<vec2<f32>, WORKGROUP>;

// The combined value of the subgroups at multiples of `distance`, and the number of their invocations.
fn met(own: f32, distance: u32, invocations: u32, takes_largest: bool) -> vec2<f32> {
    var result = vec2<f32>(select(0.0, own, takes_largest), 0.0);
    for (var index = 0u; index < invocations; index += distance) {
        let other = of_subgroups[index];
        if other.y != 0.0 {
            result = vec2<f32>(combined(result.x, other.x, takes_largest), result.y + other.y);
        }
    }
    return result;
}

// WGSL leaves open which invocations form a subgroup, and how many are missing in one that is not full. Where subgroups
// are equally many neighbours, as is usual, one index for each is read; otherwise the sum of the numbers is not that of
// all invocations, and every index is read. The order is that of the indices in both.
fn reduced(value: f32, lane: u32, invocations: u32, takes_largest: bool) -> f32 {
    var own = 0.0;
    if takes_largest {
        own = subgroupMax(value);
    } else {
        own = subgroupAdd(value);
    }
    let counts = countOneBits(subgroupBallot(true));
    let members = counts.x + counts.y + counts.z + counts.w;
    let is_first = subgroupBroadcastFirst(lane) == lane;
    of_subgroups[lane] = vec2<f32>(own, select(0.0, f32(members), is_first));
    workgroupBarrier();
    var result = met(own, members, invocations, takes_largest);
    if result.y != f32(invocations) {
        result = met(own, 1u, invocations, takes_largest);
    }
    workgroupBarrier();
    return result.x;
}

// Of the group of the invocation, which is the only one.
fn total_of_group(value: f32, lane: u32, invocations: u32, groups: u32) -> f32 {
    return reduced(value, lane, invocations, false);
}

fn largest_of_group(value: f32, lane: u32, invocations: u32, groups: u32) -> f32 {
    return reduced(value, lane, invocations, true);
}
