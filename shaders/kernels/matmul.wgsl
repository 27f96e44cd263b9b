// Matrix products C = A B, all f32, for each pair of a batch; C row-major, A and B with any strides. A product is
// numbered by two axes of the batch, along which A and B have strides too: 0 where one of them is repeated.
import package::lib::tile::{Operands, SIDE, TILE, sums_of_tile};

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

// 0 and 1 are those of tile.wgsl.
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> parameters: MatmulParameters;

// What follows a product may be fused with it here.
fn stored(value: f32, at: u32) {
    c[at] = value;
}

// The grid has a column for each tile of columns, and the tiles of rows of one product after the other.
@compute @workgroup_size(SIDE, SIDE)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let operands = Operands(
        parameters.rows, parameters.columns, parameters.inner, parameters.a_row_stride, parameters.a_inner_stride,
        parameters.b_inner_stride, parameters.b_column_stride,
    );
    let tile_rows = (parameters.rows + TILE - 1u) / TILE;
    let product = parameters.first_product + workgroup.y / tile_rows;
    let outer = product / parameters.batch_inner;
    let within = product % parameters.batch_inner;
    let a_start = parameters.a_start + outer * parameters.a_outer_stride + within * parameters.a_batch_stride;
    let b_start = parameters.b_start + outer * parameters.b_outer_stride + within * parameters.b_batch_stride;
    let c_start = product * parameters.rows * parameters.columns;
    let first_row = workgroup.y % tile_rows * TILE;
    let first_column = workgroup.x * TILE;
    // In a loop, since browsers on a software adapter compile this far faster than sixteen branches.
    var sums = sums_of_tile(operands, a_start, b_start, first_row, first_column, lane);
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 4u; j++) {
            let row = first_row + local.y * 4u + i;
            let column = first_column + local.x * 4u + j;
            if row < parameters.rows && column < parameters.columns {
                stored(sums[i][j], c_start + row * parameters.columns + column);
            }
        }
    }
}
