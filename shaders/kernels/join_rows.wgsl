// Adds up what `sum_rows` left of a run of one row that goes on in the next chunks, where the run begins.
struct JoinRowsParameters { count: u32, rows: u32, length: u32 }

@group(0) @binding(0) var<storage, read> sorted: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
@group(0) @binding(2) var<uniform> parameters: JoinRowsParameters;

const CHUNK: u32 = 64u;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let length = parameters.length;
    let at = (workgroup.x + workgroup.y * grid.x) * 256u + lane;
    let first = at / length * CHUNK;
    let column = at % length;
    var next = first + CHUNK;
    if next >= parameters.count {
        return;
    }
    let row = sorted[next];
    if row >= parameters.rows || sorted[next - 1u] != row {
        return;
    }
    var head = next - 1u;
    while head > first && sorted[head - 1u] == row {
        head -= 1u;
    }
    if head == first && first > 0u && sorted[max(first, 1u) - 1u] == row {
        return; // the run begins in a chunk before
    }
    var sum = sums[head * length + column];
    while next < parameters.count && sorted[min(next, parameters.count - 1u)] == row {
        sum += sums[next * length + column];
        next += CHUNK;
    }
    sums[head * length + column] = sum;
}
