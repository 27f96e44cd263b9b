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

// The digits of four depths.
struct Depths { plane: vec4<u32>, down: vec4<u32>, across: vec4<u32> }

fn offsets_of_columns(columns: vec4<u32>, operands: Operands) -> vec4<u32> {
    let rows = columns / operands.of_column.width;
    return rows / operands.of_column.height * operands.of_column.plane
        + rows % operands.of_column.height * operands.of_column.down
        + columns % operands.of_column.width * operands.of_column.across;
}

fn depths_at(numbers: vec4<u32>, operands: Operands) -> Depths {
    let rows = numbers / operands.of_depth.width;
    return Depths(rows / operands.of_depth.height, rows % operands.of_depth.height, numbers % operands.of_depth.width);
}

// Digits are added, since digits of the sum would take two divisions.
fn four_later(depths: Depths, operands: Operands) -> Depths {
    let added = depths_at(vec4<u32>(4u), operands);
    let across = depths.across + added.across;
    let is_next = across >= vec4<u32>(operands.of_depth.width);
    let down = depths.down + added.down + select(vec4<u32>(0u), vec4<u32>(1u), is_next);
    let is_below = down >= vec4<u32>(operands.of_depth.height);
    return Depths(
        depths.plane + added.plane + select(vec4<u32>(0u), vec4<u32>(1u), is_below),
        down - select(vec4<u32>(0u), vec4<u32>(operands.of_depth.height), is_below),
        across - select(vec4<u32>(0u), vec4<u32>(operands.of_depth.width), is_next),
    );
}

fn offsets_of_depths(depths: Depths, operands: Operands) -> vec4<u32> {
    return depths.plane * operands.of_depth.plane + depths.down * operands.of_depth.down
        + depths.across * operands.of_depth.across;
}
