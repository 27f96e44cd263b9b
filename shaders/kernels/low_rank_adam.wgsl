// Adam's moments and step for gradients that are projected (GaLore, Zhao et al. 2024, arXiv:2403.03507, algorithm 2),
// which lie in stacks of their own. The step takes the place of the gradient. A row of the grid is one tensor.
struct AdamParameters {
    size: u32,
    row_words: u32,
    // Words of the tensor's row:
    one_minus_beta1: u32,
    beta2: u32,
    one_minus_beta2: u32,
    eps: u32,
    correction1: u32,
    correction2: u32,
}

// The number of a tensor, and the first elements of its gradient, and of its moments.
struct Entry { tensor: u32, direction: u32, moments: u32 }

@group(0) @binding(0) var<storage, read_write> direction: array<f32>;
@group(0) @binding(1) var<storage, read_write> exp_avg: array<f32>;
@group(0) @binding(2) var<storage, read_write> exp_avg_sq: array<f32>;
@group(0) @binding(3) var<storage, read> entries: array<Entry>;
@group(0) @binding(4) var<storage, read> tensor_scalars: array<u32>;
@group(0) @binding(5) var<uniform> parameters: AdamParameters;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let entry = entries[workgroup.y];
    let row = entry.tensor * parameters.row_words;
    let element = workgroup.x * 256u + lane;
    if tensor_scalars[row] != 1u || element >= parameters.size {
        return;
    }
    let one_minus_beta1 = bitcast<f32>(tensor_scalars[row + parameters.one_minus_beta1]);
    let beta2 = bitcast<f32>(tensor_scalars[row + parameters.beta2]);
    let one_minus_beta2 = bitcast<f32>(tensor_scalars[row + parameters.one_minus_beta2]);
    let eps = bitcast<f32>(tensor_scalars[row + parameters.eps]);
    let correction1 = bitcast<f32>(tensor_scalars[row + parameters.correction1]);
    let correction2 = bitcast<f32>(tensor_scalars[row + parameters.correction2]);
    let g = direction[entry.direction + element];
    let at = entry.moments + element;
    let first = exp_avg[at] + one_minus_beta1 * (g - exp_avg[at]);
    let second = beta2 * exp_avg_sq[at] + one_minus_beta2 * g * g;
    exp_avg[at] = first;
    exp_avg_sq[at] = second;
    direction[entry.direction + element] = first / correction1 / (sqrt(second / correction2) + eps);
}
