// softmax or its logarithm over the rows of a (rows, columns) matrix: x - max - log(sum(exp(x - max))), in two passes.
// `groups` rows to a workgroup. A row with NaN or infinity, or of -infinity alone, is NaN.
import package::lib::exponentials::{exp_of_distance, no_exponentials, with_exponential};
import package::lib::math::{INFINITY_BITS, NAN_BITS, is_nan, precise_exp, precise_log, replace_bits};
import package::lib::workgroup::WORKGROUP;
@if(SUBGROUPS) import package::lib::subgroups::{largest_of_group, total_of_group};
@else import package::lib::workgroup::{largest_of_group, total_of_group};

struct SoftmaxParameters { rows: u32, columns: u32, is_log: u32, groups: u32 }

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;
@group(0) @binding(2) var<uniform> parameters: SoftmaxParameters;

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
    let end = select(first, first + parameters.columns, row < parameters.rows);

    var own = no_exponentials();
    for (var at = first + member; at < end; at += group_size) {
        own = with_exponential(own, values[at]);
    }
    let maximum = largest_of_group(own.largest, lane, WORKGROUP, parameters.groups);
    let scaled = own.sum * precise_exp(own.largest - maximum);
    let sum = total_of_group(scaled, lane, WORKGROUP, parameters.groups);
    // Without infinities and NaN the largest alone adds 1.
    let is_undefined = bitcast<u32>(maximum) == INFINITY_BITS || is_nan(sum) || sum < 0.5;
    let log_sum = precise_log(sum);

    for (var at = first + member; at < end; at += group_size) {
        var value = values[at] - maximum;
        if parameters.is_log == 1u {
            value -= log_sum;
        } else {
            value = exp_of_distance(value) / sum;
        }
        result[at] = replace_bits(value, NAN_BITS, is_undefined);
    }
}
