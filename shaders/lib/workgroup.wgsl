// What the invocations of a workgroup make of a value each, for cooperative kernels. All of them call, and all get the
// result. There are a power of two up to 64, or any number from 64 to 256: they meet in turns of 64, since browsers on a
// software adapter take long to compile large arrays.
const TURN: u32 = 64u;

var<workgroup> partial: array<f32, 64>;
var<workgroup> of_teams: array<f32, 256>;

fn combined(a: f32, b: f32, takes_largest: bool) -> f32 {
    return select(a + b, max(a, b), takes_largest);
}

fn reduced(value: f32, lane: u32, invocations: u32, takes_largest: bool) -> f32 {
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
    for (var width = min(invocations, TURN) / 2u; width > 0u; width = width / 2u) {
        if lane < width {
            partial[lane] = combined(partial[lane], partial[lane + width], takes_largest);
        }
        workgroupBarrier();
    }
    let result = partial[0];
    workgroupBarrier();
    return result;
}

fn total(value: f32, lane: u32, invocations: u32) -> f32 {
    return reduced(value, lane, invocations, false);
}

fn largest(value: f32, lane: u32, invocations: u32) -> f32 {
    return reduced(value, lane, invocations, true);
}

// Of so many neighbours, the team of the invocation.
fn total_of_team(value: f32, lane: u32, team: u32) -> f32 {
    of_teams[lane] = value;
    workgroupBarrier();
    let first = lane / team * team;
    var sum = 0.0;
    for (var other = 0u; other < team; other++) {
        sum += of_teams[first + other];
    }
    workgroupBarrier();
    return sum;
}
