// What Adam makes of a projected gradient R, as a factor for each channel or for the whole tensor (APOLLO, Zhu et al.
// 2024, arXiv:2412.05270, algorithm 1): the norm of its step divided by that of R, or 0 where R is 0. A row of the grid is
// one tensor; where there is one factor, it has one workgroup.
import package::lib::workgroup::total;

struct FactorParameters {
    channels: u32,
    rank: u32,
    channel_stride: u32,
    rank_stride: u32,
    factors: u32, // of a tensor: 1, or as many as channels
    row_words: u32,
    // Words of the tensor's row:
    one_minus_beta1: u32,
    beta2: u32,
    one_minus_beta2: u32,
    eps: u32,
    correction1: u32,
    correction2: u32,
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
    let one_minus_beta1 = bitcast<f32>(tensor_scalars[row + parameters.one_minus_beta1]);
    let beta2 = bitcast<f32>(tensor_scalars[row + parameters.beta2]);
    let one_minus_beta2 = bitcast<f32>(tensor_scalars[row + parameters.one_minus_beta2]);
    let eps = bitcast<f32>(tensor_scalars[row + parameters.eps]);
    let correction1 = bitcast<f32>(tensor_scalars[row + parameters.correction1]);
    let correction2 = bitcast<f32>(tensor_scalars[row + parameters.correction2]);
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
            let moment = entry.moments + at;
            let first = exp_avg[moment] + one_minus_beta1 * (g - exp_avg[moment]);
            let second = beta2 * exp_avg_sq[moment] + one_minus_beta2 * g * g;
            exp_avg[moment] = first;
            exp_avg_sq[moment] = second;
            let step = first / correction1 / (sqrt(second / correction2) + eps);
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
