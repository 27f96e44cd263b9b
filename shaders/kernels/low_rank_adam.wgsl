// Adam's moments and step for gradients that are projected (GaLore, Zhao et al. 2024, arXiv:2403.03507, algorithm 2),
// which lie in stacks of their own. The step takes the place of the gradient. A row of the grid is one tensor.
import package::lib::adam::{Adam, Moments, adam_step, next_moments};

struct AdamParameters {
    size: u32,
    row_words: u32,
    one_minus_beta1_word: u32,
    beta2_word: u32,
    one_minus_beta2_word: u32,
    eps_word: u32,
    correction1_word: u32,
    correction2_word: u32,
}

// The number of a tensor, and the first elements of its gradient, and of its moments.
struct Entry { tensor: u32, direction: u32, moments: u32 }

@group(0) @binding(0) var<storage, read_write> direction: array<f32>;
@group(0) @binding(1) var<storage, read_write> exp_avg: array<f32>;
@group(0) @binding(2) var<storage, read_write> exp_avg_sq: array<f32>;
@group(0) @binding(3) var<storage, read> entries: array<Entry>;
@group(0) @binding(4) var<storage, read> tensor_scalars: array<u32>;
@group(0) @binding(5) var<uniform> parameters: AdamParameters;

// Of the tensor with this row of scalars.
fn adam_of(row: u32) -> Adam {
    return Adam(
        bitcast<f32>(tensor_scalars[row + parameters.one_minus_beta1_word]),
        bitcast<f32>(tensor_scalars[row + parameters.beta2_word]),
        bitcast<f32>(tensor_scalars[row + parameters.one_minus_beta2_word]),
        bitcast<f32>(tensor_scalars[row + parameters.eps_word]),
        bitcast<f32>(tensor_scalars[row + parameters.correction1_word]),
        bitcast<f32>(tensor_scalars[row + parameters.correction2_word]),
    );
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let entry = entries[workgroup.y];
    let row = entry.tensor * parameters.row_words;
    let element = workgroup.x * 256u + lane;
    if tensor_scalars[row] != 1u || element >= parameters.size {
        return;
    }
    let adam = adam_of(row);
    let at = entry.moments + element;
    let g = direction[entry.direction + element];
    let moments = next_moments(Moments(exp_avg[at], exp_avg_sq[at]), g, adam);
    exp_avg[at] = moments.first;
    exp_avg_sq[at] = moments.second;
    direction[entry.direction + element] = adam_step(moments, adam);
}
