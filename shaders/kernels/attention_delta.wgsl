// What the gradients of attention need of each query: the logarithm of its sum of weights, and rowsum(dO O). Eight
// invocations for a row; the result O lies in order, its gradient dO may have any strides.
import package::lib::workgroup::{total_of_group};

struct DeltaParameters {
    queries: u32, // in all products
    rows: u32,    // of one
    columns: u32,
    batch_inner: u32,
    start: u32,
    outer_stride: u32,
    batch_stride: u32,
    row_stride: u32,
    column_stride: u32,
}

@group(0) @binding(0) var<storage, read> grad: array<f32>;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read> log_sums: array<f32>;
@group(0) @binding(3) var<storage, read_write> of_queries: array<vec2<f32>>;
@group(0) @binding(4) var<uniform> parameters: DeltaParameters;

const WORKGROUP: u32 = 64u;
const GROUP_SIZE: u32 = 8u;
const GROUPS: u32 = 8u;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let query = (workgroup.x + workgroup.y * grid.x) * GROUPS + lane / GROUP_SIZE;
    let product = query / parameters.rows;
    var sum = 0.0;
    if query < parameters.queries {
        let first = parameters.start + product / parameters.batch_inner * parameters.outer_stride
            + product % parameters.batch_inner * parameters.batch_stride
            + query % parameters.rows * parameters.row_stride;
        for (var column = lane % GROUP_SIZE; column < parameters.columns; column += GROUP_SIZE) {
            sum += grad[first + column * parameters.column_stride] * values[query * parameters.columns + column];
        }
    }
    sum = total_of_group(sum, lane, WORKGROUP, GROUPS);
    if lane % GROUP_SIZE == 0u && query < parameters.queries {
        of_queries[query] = vec2<f32>(log_sums[query], sum);
    }
}
