// Matrix product C = A B, all f32, C row-major; A and B with any strides.
import package::lib::tile::{Operands, TILE, sums_of_tile};

struct MatmulParameters {
    rows: u32,
    columns: u32,
    inner: u32,
    a_row_stride: u32,
    a_inner_stride: u32,
    b_inner_stride: u32,
    b_column_stride: u32,
}

// 0 and 1 are those of tile.wgsl.
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> parameters: MatmulParameters;

@compute @workgroup_size(8, 8)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let operands = Operands(
        parameters.rows, parameters.columns, parameters.inner, parameters.a_row_stride, parameters.a_inner_stride,
        parameters.b_inner_stride, parameters.b_column_stride,
    );
    let first_row = workgroup.y * TILE;
    let first_column = workgroup.x * TILE;
    // In a loop, since browsers on a software adapter compile this far faster than sixteen branches.
    var sums = sums_of_tile(operands, 0u, 0u, first_row, first_column, lane);
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 4u; j++) {
            let row = first_row + local.y * 4u + i;
            let column = first_column + local.x * 4u + j;
            if row < parameters.rows && column < parameters.columns {
                c[row * parameters.columns + column] = sums[i][j];
            }
        }
    }
}
