// The gradient of layer normalization by what is normalized: with n = (x - mean) scale and h = g weight,
// scale (h - mean(h) - n mean(h n)). `groups` rows to a workgroup.
import package::lib::workgroup::WORKGROUP;
@if(SUBGROUPS) import package::lib::subgroups::total_of_group;
@else import package::lib::workgroup::total_of_group;

struct NormGradParameters { rows: u32, columns: u32, has_weight: u32, groups: u32 }

@group(0) @binding(0) var<storage, read> grad: array<f32>;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> of_rows: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> result: array<f32>;
@group(0) @binding(5) var<uniform> parameters: NormGradParameters;

// What follows may be fused with it here.
fn stored(value: f32, at: u32) {
    result[at] = value;
}

fn weighted(at: u32, column: u32) -> f32 {
    if parameters.has_weight == 0u {
        return grad[at];
    }
    return grad[at] * weight[column];
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
    let of_row = of_rows[min(row, parameters.rows - 1u)];
    let mean = of_row.x;
    let scale = of_row.y;
    let count = f32(parameters.columns);

    var sum = 0.0;
    var products = 0.0;
    for (var column = member; column < columns; column += group_size) {
        let h = weighted(first + column, column);
        sum += h;
        products += h * ((values[first + column] - mean) * scale);
    }
    let mean_h = total_of_group(sum, lane, WORKGROUP, parameters.groups) / count;
    let mean_products = total_of_group(products, lane, WORKGROUP, parameters.groups) / count;

    for (var column = member; column < columns; column += group_size) {
        let normalized = (values[first + column] - mean) * scale;
        let h = weighted(first + column, column);
        stored(scale * (h - mean_h - normalized * mean_products), first + column);
    }
}
