// Layer normalization (Ba et al. 2016, arXiv:1607.06450) of the rows of a matrix, (x - mean) / sqrt(variance + eps)
// weight + bias, and mean and 1 / sqrt(variance + eps) of each row. Two passes: in the first an invocation updates its
// mean and the sum of squared distances from it with each value (Welford 1962, doi:10.1080/00401706.1962.10490022), so
// that a large mean costs no digits. `groups` rows to a workgroup.
import package::lib::workgroup::WORKGROUP;
@if(SUBGROUPS) import package::lib::subgroups::total_of_group;
@else import package::lib::workgroup::total_of_group;

struct NormParameters { rows: u32, columns: u32, has_weight: u32, has_bias: u32, eps: f32, groups: u32 }

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> of_rows: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> result: array<f32>;
@group(0) @binding(5) var<uniform> parameters: NormParameters;

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group_size = WORKGROUP / parameters.groups;
    let row = (workgroup.x + workgroup.y * grid.x) * parameters.groups + lane / group_size;
    let member = lane % group_size;
    let first = row * parameters.columns;
    let columns = select(0u, parameters.columns, row < parameters.rows);
    let count = f32(parameters.columns);

    var own_mean = 0.0;
    var squares = 0.0; // of distances from it
    var number = 0.0;
    for (var column = member; column < columns; column += group_size) {
        let value = values[first + column];
        let distance = value - own_mean;
        number += 1.0;
        own_mean += distance / number;
        squares += distance * (value - own_mean);
    }
    let mean = total_of_group(number * own_mean, lane, WORKGROUP, parameters.groups) / count;
    squares += number * (own_mean - mean) * (own_mean - mean);
    let scale = 1.0 / sqrt(total_of_group(squares, lane, WORKGROUP, parameters.groups) / count + parameters.eps);

    for (var column = member; column < columns; column += group_size) {
        var value = (values[first + column] - mean) * scale;
        if parameters.has_weight != 0u {
            value *= weight[column];
        }
        if parameters.has_bias != 0u {
            value += bias[column];
        }
        result[first + column] = value;
    }
    if member == 0u && row < parameters.rows {
        of_rows[row] = vec2<f32>(mean, scale);
    }
}
