// Matrix product C = A B, all f32, C row-major; A and B with any strides, so that a transposed operand costs no copy.
// A workgroup of 8 x 8 invocations computes a tile of 32 x 32; each invocation 4 rows of 4 neighbouring columns.
struct MatmulParameters {
    rows: u32,
    columns: u32,
    inner: u32,
    a_row_stride: u32,
    a_inner_stride: u32,
    b_inner_stride: u32,
    b_column_stride: u32,
}

const TILE: u32 = 32u;
const DEPTH: u32 = 16u;

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> parameters: MatmulParameters;

var<workgroup> a_tile: array<f32, 512>; // DEPTH x TILE: column of A after column, so that four rows lie side by side
var<workgroup> b_tile: array<f32, 512>; // DEPTH x TILE

@compute @workgroup_size(8, 8)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first_row = workgroup.y * TILE;
    let first_column = workgroup.x * TILE;
    let my_row = local.y * 4u;
    let my_column = local.x * 4u;
    var sum0 = vec4<f32>(0.0);
    var sum1 = vec4<f32>(0.0);
    var sum2 = vec4<f32>(0.0);
    var sum3 = vec4<f32>(0.0);

    // Neighbouring invocations load neighbouring elements, along whichever axis that is.
    let a_by_depth = parameters.a_inner_stride == 1u;
    let b_by_depth = parameters.b_inner_stride == 1u && parameters.b_column_stride != 1u;

    for (var start = 0u; start < parameters.inner; start += DEPTH) {
        for (var turn = 0u; turn < 8u; turn++) {
            let at = lane + turn * 64u;
            let a_across = select(at % TILE, at / DEPTH, a_by_depth);
            let a_depth = select(at / TILE, at % DEPTH, a_by_depth);
            let row = first_row + a_across;
            var a_value = 0.0;
            if row < parameters.rows && start + a_depth < parameters.inner {
                a_value = a[row * parameters.a_row_stride + (start + a_depth) * parameters.a_inner_stride];
            }
            a_tile[a_depth * TILE + a_across] = a_value;
            let b_across = select(at % TILE, at / DEPTH, b_by_depth);
            let b_depth = select(at / TILE, at % DEPTH, b_by_depth);
            let column = first_column + b_across;
            var b_value = 0.0;
            if column < parameters.columns && start + b_depth < parameters.inner {
                b_value = b[(start + b_depth) * parameters.b_inner_stride + column * parameters.b_column_stride];
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
    // In a loop, since browsers on a software adapter compile this far faster than sixteen branches.
    var sums = array<vec4<f32>, 4>(sum0, sum1, sum2, sum3);
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 4u; j++) {
            let row = first_row + my_row + i;
            let column = first_column + my_column + j;
            if row < parameters.rows && column < parameters.columns {
                c[row * parameters.columns + column] = sums[i][j];
            }
        }
    }
}
