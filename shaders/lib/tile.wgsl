// A tile of a matrix product A B, all f32, by a workgroup of SIDE x SIDE invocations: each has 4 rows of 4 neighbouring
// columns. A and B may have any strides, so that a transposed operand costs no copy.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;

struct Operands {
    rows: u32,
    columns: u32,
    inner: u32,
    a_row_stride: u32,
    a_inner_stride: u32,
    b_inner_stride: u32,
    b_column_stride: u32,
}

// A tuner may set both, such that SIDE divides 4 DEPTH. See `optirs_web/runtime/tuner/candidates.py`.
override SIDE: u32 = 8u;
override DEPTH: u32 = 8u; // twice that is a quarter faster on a software adapter, but takes its compiler 0.2 s longer
const TILE: u32 = 4u * SIDE;

// Elements as they are, so of f16 where A and B are (`optirs_web/wgsl/packed_shell.py`).
var<workgroup> a_tile: array<f32, DEPTH * TILE>; // column of A after column, so that four rows lie side by side
var<workgroup> b_tile: array<f32, DEPTH * TILE>;

// The sums of an invocation: of the rows from `first_row` + lane / SIDE * 4 on, in the columns from `first_column` +
// lane % SIDE * 4 on. A and B begin at `a_start` and `b_start` of their buffers.
fn sums_of_tile(operands: Operands, a_start: u32, b_start: u32, first_row: u32, first_column: u32, lane: u32)
    -> array<vec4<f32>, 4>
{
    let my_row = lane / SIDE * 4u;
    let my_column = lane % SIDE * 4u;
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
            sum0 += a_tile[a_at] * b_row;
            sum1 += a_tile[a_at + 1u] * b_row;
            sum2 += a_tile[a_at + 2u] * b_row;
            sum3 += a_tile[a_at + 3u] * b_row;
        }
        workgroupBarrier();
    }
    return array<vec4<f32>, 4>(sum0, sum1, sum2, sum3);
}
