// Divides the values of rows by the scale of the loss, in place, and notes where one of a row of the parameter is NaN or
// infinite (Micikevicius et al. 2018, arXiv:1710.03740).
struct UnscaleRowsParameters { size: u32, rows: u32, length: u32 }

@group(0) @binding(0) var<storage, read> indices: array<u32>;
@group(0) @binding(1) var<storage, read_write> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> scaler: array<atomic<u32>>; // the bits of scale, found_inf, growth_tracker
@group(0) @binding(3) var<uniform> parameters: UnscaleRowsParameters;

const EXPONENT: u32 = 0x7f800000u;
const ONE: u32 = 0x3f800000u;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let at = (workgroup.x + workgroup.y * grid.x) * 256u + lane;
    if at >= parameters.size {
        return;
    }
    let value = values[at];
    let is_row = indices[at / parameters.length] < parameters.rows;
    if is_row && (bitcast<u32>(value) & EXPONENT) == EXPONENT {
        atomicStore(&scaler[1], ONE);
    }
    values[at] = value * (1.0 / bitcast<f32>(atomicLoad(&scaler[0])));
}
