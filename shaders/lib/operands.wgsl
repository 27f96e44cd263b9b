// The operands of a matrix product A B, all f32. Both may have any strides, so that a transposed operand costs no copy.
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

// Where the sums of an invocation begin: its rows are adjacent, its four columns COLUMN_STEP apart.
struct Place { row: u32, column: u32 }
