// Adds up the values of entries of one row, in the order of the entries sorted by row: an invocation takes a column of
// CHUNK entries, and leaves the sum of each run of one row where the run begins in the chunk.
struct SumRowsParameters { count: u32, rows: u32, length: u32 }

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read> sorted: array<u32>;
@group(0) @binding(2) var<storage, read> order: array<u32>;
@group(0) @binding(3) var<storage, read_write> sums: array<f32>;
@group(0) @binding(4) var<uniform> parameters: SumRowsParameters;

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
    if first >= parameters.count {
        return;
    }
    let end = min(first + CHUNK, parameters.count);
    var head = first;
    var row = sorted[first];
    var sum = 0.0;
    for (var entry = first; entry < end; entry++) {
        let its_row = sorted[entry];
        if its_row != row {
            sums[head * length + column] = sum;
            head = entry;
            row = its_row;
            sum = 0.0;
        }
        if row >= parameters.rows {
            return; // nothing behind it names a row
        }
        sum += values[order[entry] * length + column];
    }
    sums[head * length + column] = sum;
}
