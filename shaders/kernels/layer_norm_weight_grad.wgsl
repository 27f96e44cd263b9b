// The gradients of layer normalization by weight and bias, the sums over the rows of g (x - mean) scale and of g; for
// `chunk` rows each, one after the other: (chunks, 2, columns). An invocation for a column, 64 in a workgroup.
struct WeightGradParameters { rows: u32, columns: u32, chunk: u32 }

@group(0) @binding(0) var<storage, read> grad: array<f32>;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read> mean: array<f32>;
@group(0) @binding(3) var<storage, read> scale: array<f32>;
@group(0) @binding(4) var<storage, read_write> result: array<f32>;
@group(0) @binding(5) var<uniform> parameters: WeightGradParameters;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let column = workgroup.x * 64u + lane;
    if column >= parameters.columns {
        return;
    }
    let first = workgroup.y * parameters.chunk;
    var of_weight = 0.0;
    var of_bias = 0.0;
    for (var row = first; row < min(first + parameters.chunk, parameters.rows); row++) {
        let at = row * parameters.columns + column;
        let g = grad[at];
        of_weight += g * ((values[at] - mean[row]) * scale[row]);
        of_bias += g;
    }
    let target_at = workgroup.y * 2u * parameters.columns + column;
    result[target_at] = of_weight;
    result[target_at + parameters.columns] = of_bias;
}
