// What Adam makes of a projected gradient R, as a factor for each channel or for the whole tensor (APOLLO, Zhu et al.
// 2024, arXiv:2412.05270, algorithm 1): the norm of its step divided by that of R, or 0 where R is 0. A row of the grid is
// one tensor; where there is one factor, it has one workgroup.
import package::lib::adam::{Adam, Moments, adam_step, next_moments};
import package::lib::workgroup::total;

struct FactorParameters {
    channels: u32,
    rank: u32,
    channel_stride: u32,
    rank_stride: u32,
    factors: u32, // of a tensor: 1, or as many as channels
    row_words: u32,
    one_minus_beta1_word: u32,
    beta2_word: u32,
    one_minus_beta2_word: u32,
    eps_word: u32,
    correction1_word: u32,
    correction2_word: u32,
}

// The number of a tensor, and the first elements of its projected gradient, and of its moments.
struct Entry { tensor: u32, gradient: u32, moments: u32 }

@group(0) @binding(0) var<storage, read> gradients: array<f32>;
@group(0) @binding(1) var<storage, read_write> exp_avg: array<f32>;
@group(0) @binding(2) var<storage, read_write> exp_avg_sq: array<f32>;
@group(0) @binding(3) var<storage, read_write> factors: array<f32>;
@group(0) @binding(4) var<storage, read> entries: array<Entry>;
@group(0) @binding(5) var<storage, read> tensor_scalars: array<u32>;
@group(0) @binding(6) var<uniform> parameters: FactorParameters;

const WORKGROUP: u32 = 256u;

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

fn factor(step_sq: f32, gradient_sq: f32) -> f32 {
    return select(0.0, sqrt(step_sq) / sqrt(gradient_sq), gradient_sq > 0.0);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let entry = entries[workgroup.y];
    let row = entry.tensor * parameters.row_words;
    if tensor_scalars[row] != 1u {
        return;
    }
    let adam = adam_of(row);
    let is_one = parameters.factors == 1u;
    let first_factor = workgroup.y * parameters.factors;
    var step_sq = 0.0;
    var gradient_sq = 0.0;
    for (var channel = workgroup.x * WORKGROUP + lane; channel < parameters.channels; channel += grid.x * WORKGROUP) {
        if !is_one {
            step_sq = 0.0;
            gradient_sq = 0.0;
        }
        for (var line = 0u; line < parameters.rank; line++) {
            let at = channel * parameters.channel_stride + line * parameters.rank_stride;
            let g = gradients[entry.gradient + at];
            let place = entry.moments + at;
            let moments = next_moments(Moments(exp_avg[place], exp_avg_sq[place]), g, adam);
            exp_avg[place] = moments.first;
            exp_avg_sq[place] = moments.second;
            let step = adam_step(moments, adam);
            step_sq += step * step;
            gradient_sq += g * g;
        }
        if !is_one {
            factors[first_factor + channel] = factor(step_sq, gradient_sq);
        }
    }
    if is_one {
        let value = factor(total(step_sq, lane, WORKGROUP), total(gradient_sq, lane, WORKGROUP));
        if lane == 0u {
            factors[first_factor] = value;
        }
    }
}
