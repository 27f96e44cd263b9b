// The rows of B in quads.wgsl where B is a matrix with any strides.
import package::lib::operands::Operands;

// The offsets of four rows of B.
struct Depths { offsets: vec4<u32> }

fn offsets_of_columns(columns: vec4<u32>, operands: Operands) -> vec4<u32> {
    return columns * operands.b_column_stride;
}

fn depths_at(numbers: vec4<u32>, operands: Operands) -> Depths {
    return Depths(numbers * operands.b_inner_stride);
}

fn four_later(depths: Depths, operands: Operands) -> Depths {
    return Depths(depths.offsets + vec4<u32>(4u * operands.b_inner_stride));
}

fn offsets_of_depths(depths: Depths, operands: Operands) -> vec4<u32> {
    return depths.offsets;
}
