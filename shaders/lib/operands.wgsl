// The operands of a matrix product A B, all f32. Both may have any strides, so that a transposed operand costs no copy.
// A kernel reads each either by elements or by vectors of four, which takes what `optirs_web/runtime/products.py` checks.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(0) var<storage, read> a_vectors: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(1) var<storage, read> b_vectors: array<vec4<f32>>;

struct Operands {
    rows: u32,
    columns: u32,
    inner: u32,
    a_row_stride: u32,
    a_inner_stride: u32,
    b_inner_stride: u32,
    b_column_stride: u32,
}

// Where the sums of an invocation begin: its rows are adjacent, its columns where `column_at` says.
struct Place { row: u32, column: u32 }
