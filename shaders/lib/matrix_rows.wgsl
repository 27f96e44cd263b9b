// The rows of B in quads.wgsl where B is a matrix with any strides.
import package::lib::operands::Operands;

struct Depth { offset: u32 }

fn offset_of_column(column: u32, operands: Operands) -> u32 {
    return column * operands.b_column_stride;
}

fn depth_at(number: u32, operands: Operands) -> Depth {
    return Depth(number * operands.b_inner_stride);
}

fn four_later(depth: Depth, operands: Operands) -> Depth {
    return Depth(depth.offset + 4u * operands.b_inner_stride);
}

fn offset_of_depth(depth: Depth, operands: Operands) -> u32 {
    return depth.offset;
}
