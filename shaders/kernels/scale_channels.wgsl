// Multiplies matrices with factors: one for each row, for each column, or for all elements. A row of the grid is one
// matrix.
struct ScaleParameters { size: u32, factors: u32, divisor: u32, row_words: u32 }

// The number of a tensor, and the first elements of its matrix and of its factors.
struct Entry { tensor: u32, matrix: u32, factors: u32 }

@group(0) @binding(0) var<storage, read_write> matrices: array<f32>;
@group(0) @binding(1) var<storage, read> factors: array<f32>;
@group(0) @binding(2) var<storage, read> entries: array<Entry>;
@group(0) @binding(3) var<storage, read> tensor_scalars: array<u32>;
@group(0) @binding(4) var<uniform> parameters: ScaleParameters;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let entry = entries[workgroup.y];
    let element = workgroup.x * 256u + lane;
    if tensor_scalars[entry.tensor * parameters.row_words] != 1u || element >= parameters.size {
        return;
    }
    let at = entry.matrix + element;
    matrices[at] = matrices[at] * factors[entry.factors + element / parameters.divisor % parameters.factors];
}
