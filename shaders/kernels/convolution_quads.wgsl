// A convolution as matrix products C = A B, all f32, one for each group, by quads as in quads.wgsl, for software
// adapters. B is never stored: its elements are the pixels under the taps of windows. The images are padded, so that all
// of these exist. Columns and depths of B are numbered by three digits each:
//
// | what is computed | A | columns of B | depths of B |
// |---|---|---|---|
// | the result | filters | image, row and column of a window | channel, row and column of a tap |
// | the gradient of the images, at a stride of 1 | filters, transposed | image, row and column of a pixel | the same |
// | the gradient of the filters | that of the result, by filters | channel, row and column of a tap | image, row and column of a window |
import package::lib::image_rows::{Digits, Operands};
import package::lib::quads::{COLUMNS, INVOCATIONS, ROWS, place_of, product_of, sums_at};

struct QuadConvolutionParameters {
    rows: u32, // of the product of a group
    columns: u32,
    inner: u32,
    a_group: u32, // elements from one group to the next
    b_group: u32,
    c_group: u32,
    b_start: u32,
    c_columns: u32, // columns of an image of C, which are contiguous
    c_image: u32, // elements from one image of C to the next
    column_height: u32, // see Digits
    column_width: u32,
    column_plane: u32,
    column_down: u32,
    column_across: u32,
    depth_height: u32,
    depth_width: u32,
    depth_plane: u32,
    depth_down: u32,
    depth_across: u32,
}

// 0 and 1 are those of operands.wgsl.
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> parameters: QuadConvolutionParameters;

// What follows a convolution may be fused with it here.
fn stored(value: f32, at: u32) {
    c[at] = value;
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let of_column = Digits(
        parameters.column_height, parameters.column_width, parameters.column_plane, parameters.column_down,
        parameters.column_across,
    );
    let of_depth = Digits(
        parameters.depth_height, parameters.depth_width, parameters.depth_plane, parameters.depth_down,
        parameters.depth_across,
    );
    let operands = Operands(
        parameters.rows, parameters.columns, parameters.inner, parameters.inner, 1u, of_column, of_depth,
    );
    let group = product_of(workgroup, operands);
    let place = place_of(workgroup, lane, operands);
    let a_start = group * parameters.a_group;
    var sums = sums_at(place, lane, 0u, 0u, operands, a_start, parameters.b_start + group * parameters.b_group);
    let c_start = group * parameters.c_group + place.row * parameters.c_columns;
    for (var j = 0u; j < COLUMNS; j++) {
        let column = place.column + j;
        if column < parameters.columns {
            let at = c_start + column / parameters.c_columns * parameters.c_image + column % parameters.c_columns;
            for (var i = 0u; i < ROWS; i++) {
                if place.row + i < parameters.rows {
                    stored(sums[i][j], at + i * parameters.c_columns);
                }
            }
        }
    }
}
