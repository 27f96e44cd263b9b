// A tile of a matrix product A B by a workgroup of SIDE x SIDE invocations, which stage it in workgroup memory: each has 4
// rows of 4 adjacent columns. For GPUs; see quads.wgsl.
import package::lib::operands::{Operands, Place, a, b};

// A tuner may set both, such that SIDE divides 4 DEPTH. See `optirs_web/runtime/tuner/candidates.py`.
override SIDE: u32 = 8u;
override DEPTH: u32 = 8u; // twice that is a quarter faster on a software adapter, but takes its compiler 0.2 s longer
const TILE: u32 = 4u * SIDE;

// Elements as they are, so of f16 where A and B are (`optirs_web/wgsl/packed_shell.py`).
var<workgroup> a_tile: array<f32, DEPTH * TILE>; // column of A after column, so that four rows lie side by side
var<workgroup> b_tile: array<f32, DEPTH * TILE>;

const WIDTH: u32 = SIDE; // of a workgroup
const HEIGHT: u32 = SIDE;
const ROWS: u32 = 4u; // of an invocation
const COLUMN_STEP: u32 = 1u;

// The grid has a column for each tile of columns, and the tiles of rows of one product after the other.
fn product_of(workgroup: vec3<u32>, operands: Operands) -> u32 {
    return workgroup.y / ((operands.rows + TILE - 1u) / TILE);
}

fn place_of(workgroup: vec3<u32>, lane: u32, operands: Operands) -> Place {
    let first_row = workgroup.y % ((operands.rows + TILE - 1u) / TILE) * TILE;
    return Place(first_row + lane / SIDE * 4u, workgroup.x * TILE + lane % SIDE * 4u);
}

// The sums of an invocation. A and B begin at `a_start` and `b_start` of their buffers.
fn sums_at(place: Place, lane: u32, operands: Operands, a_start: u32, b_start: u32) -> array<vec4<f32>, ROWS> {
    let my_row = lane / SIDE * 4u;
    let my_column = lane % SIDE * 4u;
    let first_row = place.row - my_row;
    let first_column = place.column - my_column;
    var sum0 = vec4<f32>(0.0);
    var sum1 = vec4<f32>(0.0);
    var sum2 = vec4<f32>(0.0);
    var sum3 = vec4<f32>(0.0);

    // Neighbouring invocations load neighbouring elements, along whichever axis that is.
    let a_by_depth = operands.a_inner_stride == 1u;
    let b_by_depth = operands.b_inner_stride == 1u && operands.b_column_stride != 1u;

    for (var start = 0u; start < operands.inner; start += DEPTH) {
        for (var turn = 0u; turn < 4u * DEPTH / SIDE; turn++) {
            let at = lane + turn * (SIDE * SIDE);
            let a_across = select(at % TILE, at / DEPTH, a_by_depth);
            let a_depth = select(at / TILE, at % DEPTH, a_by_depth);
            let row = first_row + a_across;
            var a_value = 0.0;
            if row < operands.rows && start + a_depth < operands.inner {
                a_value = a[a_start + row * operands.a_row_stride + (start + a_depth) * operands.a_inner_stride];
            }
            a_tile[a_depth * TILE + a_across] = a_value;
            let b_across = select(at % TILE, at / DEPTH, b_by_depth);
            let b_depth = select(at / TILE, at % DEPTH, b_by_depth);
            let column = first_column + b_across;
            var b_value = 0.0;
            if column < operands.columns && start + b_depth < operands.inner {
                b_value = b[b_start + (start + b_depth) * operands.b_inner_stride + column * operands.b_column_stride];
            }
            b_tile[b_depth * TILE + b_across] = b_value;
        }
        workgroupBarrier();
        for (var depth = 0u; depth < DEPTH; depth++) {
            let a_at = depth * TILE + my_row;
            let b_at = depth * TILE + my_column;
            let b_row = vec4<f32>(b_tile[b_at], b_tile[b_at + 1u], b_tile[b_at + 2u], b_tile[b_at + 3u]);
            sum0 = fma(vec4<f32>(a_tile[a_at]), b_row, sum0);
            sum1 = fma(vec4<f32>(a_tile[a_at + 1u]), b_row, sum1);
            sum2 = fma(vec4<f32>(a_tile[a_at + 2u]), b_row, sum2);
            sum3 = fma(vec4<f32>(a_tile[a_at + 3u]), b_row, sum3);
        }
        workgroupBarrier();
    }
    return array<vec4<f32>, ROWS>(sum0, sum1, sum2, sum3);
}
