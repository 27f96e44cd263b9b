// The first of the largest elements of a row, or of the smallest, for kernels that reduce rows: a NaN comes before all. See
// `workgroup.wgsl` for groups of invocations.
import package::lib::math::is_nan;
import package::lib::order::order_key;
import package::lib::workgroup::{ALONE, HEADS, PASS_INVOCATIONS};

const LOWEST: i32 = -2147483648;
const HIGHEST: i32 = 2147483647;
const NOWHERE: u32 = 0xffffffffu;

// The one that is looked for has the highest rank, and of equal ones the lowest column.
struct Candidate { rank: i32, column: u32 }

fn no_candidate() -> Candidate {
    return Candidate(LOWEST, NOWHERE);
}

fn rank_of_f32(x: f32, is_smallest: bool) -> i32 {
    let key = order_key(x);
    return select(select(key, ~key, is_smallest), HIGHEST, is_nan(x));
}

fn rank_of_i32(x: i32, is_smallest: bool) -> i32 {
    return select(x, ~x, is_smallest);
}

fn rank_of_u32(x: u32, is_smallest: bool) -> i32 {
    return rank_of_i32(bitcast<i32>(x ^ 0x80000000u), is_smallest);
}

fn better(a: Candidate, b: Candidate) -> Candidate {
    if b.rank > a.rank || (b.rank == a.rank && b.column < a.column) {
        return b;
    }
    return a;
}

var<workgroup> ranks: array<i32, 64>;
var<workgroup> columns: array<u32, 64>;

fn keep(own: Candidate, place: u32) {
    ranks[place] = own.rank;
    columns[place] = own.column;
}

fn kept(place: u32) -> Candidate {
    return Candidate(ranks[place], columns[place]);
}

// Of the group of the invocation, as `reduced` of `workgroup.wgsl`.
fn best_of_group(own: Candidate, lane: u32, invocations: u32, groups: u32) -> Candidate {
    if ALONE {
        return own;
    }
    if lane < PASS_INVOCATIONS {
        keep(own, lane);
    }
    workgroupBarrier();
    for (var first = PASS_INVOCATIONS; first < invocations; first += PASS_INVOCATIONS) {
        if lane >= first && lane < first + PASS_INVOCATIONS {
            keep(better(kept(lane - first), own), lane - first);
        }
        workgroupBarrier();
    }
    let group_size = min(invocations, PASS_INVOCATIONS) / groups;
    let first = lane % PASS_INVOCATIONS / group_size * group_size;
    if group_size > HEADS {
        if lane - first < HEADS {
            for (var other = lane + HEADS; other < first + group_size; other += HEADS) {
                keep(better(kept(lane), kept(other)), lane);
            }
        }
        workgroupBarrier();
    }
    var result = kept(first);
    for (var other = first + 1u; other < first + min(group_size, HEADS); other++) {
        result = better(result, kept(other));
    }
    workgroupBarrier();
    return result;
}
