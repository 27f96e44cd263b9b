// Matrix products C = A B, all f32, for each pair of a batch; C row-major, A and B with any strides. A product is
// numbered by two axes of the batch, along which A and B have strides too: 0 where one of them is repeated.
import package::lib::operands::Operands;
@if(QUADS) import package::lib::quads::{COLUMNS, IN_REGISTERS, INVOCATIONS, ROWS, column_at, place_of, product_of, sums_at};
@elif(MATRICES) import package::lib::matrices::{COLUMNS, IN_REGISTERS, INVOCATIONS, ROWS, column_at, place_of, product_of, sums_at};
@else import package::lib::tile::{COLUMNS, IN_REGISTERS, INVOCATIONS, ROWS, column_at, place_of, product_of, sums_at};

struct MatmulParameters {
    rows: u32,
    columns: u32,
    inner: u32,
    a_row_stride: u32,
    a_inner_stride: u32,
    b_inner_stride: u32,
    b_column_stride: u32,
    a_start: u32,
    b_start: u32,
    first_product: u32,
    batch_inner: u32,
    a_outer_stride: u32,
    a_batch_stride: u32,
    b_outer_stride: u32,
    b_batch_stride: u32,
}

// 0 and 1 are those of operands.wgsl.
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> parameters: MatmulParameters;

// What follows a product may be fused with it here. What is the same in all rows is read once for each column.
struct OfColumn { nothing: u32 }

fn read_of_column(product: u32, column: u32) -> OfColumn {
    return OfColumn(0u);
}

fn stored(value: f32, at: u32, product: u32, row: u32, column: u32, of_column: OfColumn) {
    c[at] = value;
}

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
) {
    let operands = Operands(
        parameters.rows, parameters.columns, parameters.inner, parameters.a_row_stride, parameters.a_inner_stride,
        parameters.b_inner_stride, parameters.b_column_stride,
    );
    let product = parameters.first_product + product_of(workgroup, operands);
    let outer = product / parameters.batch_inner;
    let within = product % parameters.batch_inner;
    let a_start = parameters.a_start + outer * parameters.a_outer_stride + within * parameters.a_batch_stride;
    let b_start = parameters.b_start + outer * parameters.b_outer_stride + within * parameters.b_batch_stride;
    let c_start = product * parameters.rows * parameters.columns;
    let place = place_of(workgroup, lane, operands);
    var sums = sums_at(place, lane, subgroup, subgroups, operands, a_start, b_start);
    // Loops on software adapters, since browsers compile these far faster there than as many branches.
    var of_columns: array<OfColumn, COLUMNS>;
    @unroll(IN_REGISTERS) for (var j = 0u; j < COLUMNS; j++) {
        of_columns[j] = read_of_column(product, min(column_at(place, j), parameters.columns - 1u));
    }
    @unroll(IN_REGISTERS) for (var i = 0u; i < ROWS; i++) {
        let row = place.row + i;
        @unroll(IN_REGISTERS) for (var j = 0u; j < COLUMNS; j++) {
            let column = column_at(place, j);
            if row < parameters.rows && column < parameters.columns {
                let at = c_start + row * parameters.columns + column;
                stored(sums[i * (COLUMNS / 4u) + j / 4u][j % 4u], at, product, row, column, of_columns[j]);
            }
        }
    }
}
