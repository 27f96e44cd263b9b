// log_softmax over the rows of a (rows, columns) matrix: x - max - log(sum(exp(x - max))). One workgroup for a row.
import package::lib::math::{precise_exp, precise_log};
import package::lib::workgroup::{largest, total};

struct SoftmaxParameters { rows: u32, columns: u32 }

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;
@group(0) @binding(2) var<uniform> parameters: SoftmaxParameters;

const WORKGROUP: u32 = 64u;
const LOWEST: f32 = -3.4028235e38;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = workgroup.x + workgroup.y * grid.x;
    let is_inside = row < parameters.rows;
    let first = row * parameters.columns;

    var maximum = LOWEST;
    if is_inside {
        for (var column = lane; column < parameters.columns; column += WORKGROUP) {
            maximum = max(maximum, values[first + column]);
        }
    }
    maximum = largest(maximum, lane, WORKGROUP);

    var sum = 0.0;
    if is_inside {
        for (var column = lane; column < parameters.columns; column += WORKGROUP) {
            sum += precise_exp(values[first + column] - maximum);
        }
    }
    let log_sum = precise_log(total(sum, lane, WORKGROUP));

    if is_inside {
        for (var column = lane; column < parameters.columns; column += WORKGROUP) {
            result[first + column] = values[first + column] - maximum - log_sum;
        }
    }
}
