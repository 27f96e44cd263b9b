// Cross-entropy of the rows of a matrix with a class for each: w_t (log(sum(exp(x))) - x_t), and with `smoothing` s,
// (1 - s) times that and s / classes times the sum of w_c (log(sum(exp(x))) - x_c) over all classes (Szegedy et al.
// 2016, arXiv:1512.00567). The result has the losses, then the weights w_t, which are 0 for rows to be ignored. A
// target that is no class makes its row NaN. `groups` rows to a workgroup.
import package::lib::exponentials::{Exponentials, joined, no_exponentials};
import package::lib::math::{precise_exp, precise_log, quiet_nan};
import package::lib::workgroup::WORKGROUP;
@if(SUBGROUPS) import package::lib::subgroups::{largest_of_group, total_of_group};
@else import package::lib::workgroup::{largest_of_group, total_of_group};

struct CrossEntropyParameters {
    rows: u32, columns: u32, has_weight: u32, ignored: i32, smoothing: f32, groups: u32,
}

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read> targets: array<i32>;
@group(0) @binding(2) var<storage, read> class_weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> of_rows: array<vec2<f32>>; // log(sum(exp(x))), sum of shares
@group(0) @binding(4) var<storage, read_write> result: array<f32>; // (2, rows)
@group(0) @binding(5) var<uniform> parameters: CrossEntropyParameters;

override smooths: bool = true; // without, the smoothing is 0

fn weight_of(column: u32) -> f32 {
    if parameters.has_weight == 0u {
        return 1.0;
    }
    return class_weights[column];
}

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group_size = WORKGROUP / parameters.groups;
    let row = (workgroup.x + workgroup.y * grid.x) * parameters.groups + lane / group_size;
    let member = lane % group_size;
    let columns = select(0u, parameters.columns, row < parameters.rows);
    let first = row * parameters.columns;

    var own = no_exponentials();
    for (var column = member; column < columns; column += group_size) {
        own = joined(own, Exponentials(values[first + column], 1.0));
    }
    let maximum = largest_of_group(own.largest, lane, WORKGROUP, parameters.groups);
    let scaled = own.sum * precise_exp(own.largest - maximum);
    let log_sum = precise_log(total_of_group(scaled, lane, WORKGROUP, parameters.groups));
    var weighted = 0.0; // the sum of w_c (maximum - x_c)
    var weights = 0.0;
    if smooths {
        for (var column = member; column < columns; column += group_size) {
            weighted += weight_of(column) * (maximum - values[first + column]);
            weights += weight_of(column);
        }
        weights = total_of_group(weights, lane, WORKGROUP, parameters.groups);
        weighted = total_of_group(weighted, lane, WORKGROUP, parameters.groups) + weights * log_sum;
    }

    if member == 0u && row < parameters.rows {
        let label = targets[row];
        var loss = 0.0;
        var weight = 0.0;
        var shares = 0.0;
        let each = parameters.smoothing / f32(parameters.columns);
        if label >= 0 && label < i32(parameters.columns) && label != parameters.ignored {
            weight = weight_of(u32(label));
            let own = weight * (maximum - values[first + u32(label)] + log_sum);
            loss = (1.0 - parameters.smoothing) * own + each * weighted;
            shares = (1.0 - parameters.smoothing) * weight + each * weights;
        } else if label != parameters.ignored {
            weight = quiet_nan();
            loss = weight;
            shares = weight;
        }
        of_rows[row] = vec2<f32>(maximum + log_sum, shares);
        result[row] = loss;
        result[parameters.rows + row] = weight;
    }
}
