// Random projections that are not stored: standard normal numbers, the same for a tensor as long as `draw` is. A row of
// the grid is one tensor.
import package::elementwise::random::random_normal;

struct ProjectionParameters { size: u32, seed: u32, row_words: u32, draw_word: u32 }

// The number of a tensor, and the first element of its projection.
struct Entry { tensor: u32, projection: u32 }

@group(0) @binding(0) var<storage, read_write> projections: array<f32>;
@group(0) @binding(1) var<storage, read> entries: array<Entry>;
@group(0) @binding(2) var<storage, read> tensor_scalars: array<u32>;
@group(0) @binding(3) var<uniform> parameters: ProjectionParameters;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let entry = entries[workgroup.y];
    let row = entry.tensor * parameters.row_words;
    let element = workgroup.x * 256u + lane;
    if tensor_scalars[row] != 1u || element >= parameters.size {
        return;
    }
    let draw = u32(bitcast<f32>(tensor_scalars[row + parameters.draw_word]));
    projections[entry.projection + element] = random_normal(element, parameters.seed, entry.tensor, draw);
}
