// What the invocations of a workgroup make of a value each, for cooperative kernels. All of them call, and all get the
// result. There are a power of two up to 64, or any number from 64 to 256: they meet in turns of 64, since browsers on a
// software adapter take long to compile large arrays.
//
// The invocations of a turn may form teams, a power of two of neighbours each, which get a result of their own: for rows
// too short to occupy a workgroup. Barriers are few, since such an adapter takes long for each: a team of up to eight
// meets at two.
override WORKGROUP: u32 = 64u; // invocations of a workgroup of the kernels that import it; a tuner may set it

const TURN: u32 = 64u;
const HEADS: u32 = 8u;

// Each invocation is a team of its own, as where `teams` is 64: without barriers and memory, which cost a software adapter
// more than rows that are not shared.
override ALONE: bool = false;

var<workgroup> partial: array<f32, 64>;

fn combined(a: f32, b: f32, takes_largest: bool) -> f32 {
    return select(a + b, max(a, b), takes_largest);
}

fn reduced(value: f32, lane: u32, invocations: u32, teams: u32, takes_largest: bool) -> f32 {
    if ALONE {
        return value;
    }
    if lane < TURN {
        partial[lane] = value;
    }
    workgroupBarrier();
    for (var first = TURN; first < invocations; first += TURN) {
        if lane >= first && lane < first + TURN {
            partial[lane - first] = combined(partial[lane - first], value, takes_largest);
        }
        workgroupBarrier();
    }
    let team = min(invocations, TURN) / teams;
    let first = lane % TURN / team * team;
    if team > HEADS {
        if lane - first < HEADS {
            for (var other = lane + HEADS; other < first + team; other += HEADS) {
                partial[lane] = combined(partial[lane], partial[other], takes_largest);
            }
        }
        workgroupBarrier();
    }
    var result = partial[first];
    for (var other = first + 1u; other < first + min(team, HEADS); other++) {
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

// Of the team of the invocation.
fn total_of_team(value: f32, lane: u32, invocations: u32, teams: u32) -> f32 {
    return reduced(value, lane, invocations, teams, false);
}

fn largest_of_team(value: f32, lane: u32, invocations: u32, teams: u32) -> f32 {
    return reduced(value, lane, invocations, teams, true);
}
