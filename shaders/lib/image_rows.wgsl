// The rows of B in quads.wgsl where B is read from padded images: its elements are the pixels under the taps of windows.
// The offset of such a pixel is the sum of a part that depends on the column of B and one that depends on the depth, each
// of which is numbered by three digits; see convolution_quads.wgsl.

// The bounds of the second and third digit of a number, and the elements for each of the first, the second and the third.
struct Digits { height: u32, width: u32, plane: u32, down: u32, across: u32 }

struct Operands {
    rows: u32,
    columns: u32,
    inner: u32,
    a_row_stride: u32,
    a_inner_stride: u32,
    of_column: Digits,
    of_depth: Digits,
}

// The digits of a depth.
struct Depth { plane: u32, down: u32, across: u32 }

fn offset_of_column(column: u32, operands: Operands) -> u32 {
    let digits = operands.of_column;
    let row = column / digits.width;
    return row / digits.height * digits.plane + row % digits.height * digits.down + column % digits.width * digits.across;
}

fn depth_at(number: u32, operands: Operands) -> Depth {
    let row = number / operands.of_depth.width;
    return Depth(row / operands.of_depth.height, row % operands.of_depth.height, number % operands.of_depth.width);
}

// Digits are added, since digits of the sum would take two divisions.
fn four_later(depth: Depth, operands: Operands) -> Depth {
    let added = depth_at(4u, operands);
    let across = depth.across + added.across;
    let is_next = across >= operands.of_depth.width;
    let down = depth.down + added.down + select(0u, 1u, is_next);
    let is_below = down >= operands.of_depth.height;
    return Depth(
        depth.plane + added.plane + select(0u, 1u, is_below),
        down - select(0u, operands.of_depth.height, is_below),
        across - select(0u, operands.of_depth.width, is_next),
    );
}

fn offset_of_depth(depth: Depth, operands: Operands) -> u32 {
    let digits = operands.of_depth;
    return depth.plane * digits.plane + depth.down * digits.down + depth.across * digits.across;
}
