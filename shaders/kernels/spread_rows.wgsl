// Stores the sum of each row in its place in a dense tensor, of which the elements from `first` on are seen.
struct SpreadParameters { count: u32, rows: u32, length: u32, first: u32 }

@group(0) @binding(0) var<storage, read> sorted: array<u32>;
@group(0) @binding(1) var<storage, read> sums: array<f32>;
@group(0) @binding(2) var<storage, read_write> dense: array<f32>;
@group(0) @binding(3) var<uniform> parameters: SpreadParameters;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let at = (workgroup.x + workgroup.y * grid.x) * 256u + lane;
    let entry = at / parameters.length;
    if entry >= parameters.count {
        return;
    }
    let row = sorted[entry];
    if row >= parameters.rows || (entry > 0u && sorted[max(entry, 1u) - 1u] == row) {
        return;
    }
    let place = row * parameters.length + at % parameters.length - parameters.first; // before `first`: a large number
    if place < arrayLength(&dense) {
        dense[place] = sums[at];
    }
}
