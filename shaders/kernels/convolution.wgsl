// A convolution as matrix products C = A B, all f32, one for each group, in tiles as in tile.wgsl. B is never stored:
// its elements are the pixels under the taps of windows, 0 beyond the edges. The offset of such a pixel is the sum of a
// part that depends on the column of B and one that depends on the depth, each of which is numbered by three digits:
//
// | what is computed | A | columns of B | depths of B |
// |---|---|---|---|
// | the result | filters | image, row and column of a window | channel, row and column of a tap |
// | the gradient of the images, at a stride of 1 | filters, transposed | image, row and column of a pixel | the same |
// | the gradient of the filters | the gradient of the result | channel, row and column of a tap | row and column of a window |
//
// The last is added up over the images. For GPUs; software adapters have convolution_quads.wgsl.
import package::lib::operands::{Operands, Place, b};
import package::lib::tile::{
    B_PITCH, COLUMN_LANES, COLUMN_VECTORS, COLUMNS, DEPTH, INVOCATIONS, IN_REGISTERS, OWN_ROWS, ROWS, TILE_COLUMNS,
    TILE_ROWS, b_tile, column_at, place_of, product_of, stage_a, with_staged,
};

struct ConvolutionParameters {
    rows: u32, // of the product of a group
    columns: u32,
    inner: u32, // of an image
    a_row_stride: u32,
    groups: u32,
    a_group: u32, // elements from one group to the next
    b_group: u32,
    c_group: u32,
    images: u32, // over which products are added up
    a_image: u32,
    b_image: u32,
    part_images: u32, // A product may be in parts, of some images and some depths each.
    part_depths: u32,
    depth_parts: u32,
    c_part: u32,
    c_columns: u32, // columns of an image of C, which are contiguous
    c_image: u32, // elements from one image of C to the next
    first_column: u32,
    height: u32, // of the images that B is read from
    width: u32,
    top: u32, // padding before it
    left: u32,
    column_height: u32, // bounds of the second and third digit
    column_width: u32,
    column_plane: u32, // elements for each of the first digit
    column_down: u32, // pixels for each of the second, and of the third
    column_across: u32,
    depth_height: u32,
    depth_width: u32,
    depth_plane: u32,
    depth_down: u32,
    depth_across: u32,
}

// 0 and 1 are those of operands.wgsl.
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> parameters: ConvolutionParameters;

// Neighbouring invocations stage neighbouring depths of a column, which are windows then, instead of neighbouring
// columns.
override ALONG_DEPTH: bool = false;

const B_VECTORS: u32 = TILE_COLUMNS * DEPTH / (4u * INVOCATIONS); // that an invocation stages
const COLUMN_SETS: u32 = select(1u, B_VECTORS, ALONG_DEPTH); // sets of four columns that these vectors belong to
const DEPTH_SETS: u32 = select(B_VECTORS, 1u, ALONG_DEPTH);

// What follows a convolution may be fused with it here.
fn stored(value: f32, at: u32) {
    c[at] = value;
}

struct Digits { plane: u32, down: u32, across: u32 }

fn digits_of(number: u32, height: u32, width: u32) -> Digits {
    return Digits(number / width / height, number / width % height, number % width);
}

// Digits are added, since each step of the loop adds the same number, and digits of the sum would take two divisions.
fn sum_of(one: Digits, other: Digits, height: u32, width: u32) -> Digits {
    let across = one.across + other.across;
    let is_next = across >= width;
    let down = one.down + other.down + select(0u, 1u, is_next);
    let is_below = down >= height;
    return Digits(
        one.plane + other.plane + select(0u, 1u, is_below),
        down - select(0u, height, is_below),
        across - select(0u, width, is_next),
    );
}

// A part of a pixel's offset, row and column. Before the image these wrap around to numbers larger than any size.
struct Pixel { at: u32, y: u32, x: u32 }

fn pixel_of_column(column: u32) -> Pixel {
    let p = digits_of(column, parameters.column_height, parameters.column_width);
    let y = p.down * parameters.column_down;
    let x = p.across * parameters.column_across;
    return Pixel(p.plane * parameters.column_plane + y * parameters.width + x, y, x);
}

fn pixel_of_depth(p: Digits) -> Pixel {
    let y = p.down * parameters.depth_down - parameters.top;
    let x = p.across * parameters.depth_across - parameters.left;
    return Pixel(p.plane * parameters.depth_plane + y * parameters.width + x, y, x);
}

// The four columns of a vector that this invocation stages, from the first on, and its depth.
fn staged_columns(lane: u32, number: u32) -> u32 {
    return 4u * select(lane % (TILE_COLUMNS / 4u), lane / DEPTH + number * (INVOCATIONS / DEPTH), ALONG_DEPTH);
}

fn staged_depth(lane: u32, number: u32) -> u32 {
    let across = TILE_COLUMNS / 4u;
    return select(lane / across + number * (INVOCATIONS / across), lane % DEPTH, ALONG_DEPTH);
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var operands = Operands(parameters.rows, parameters.columns, parameters.inner, parameters.a_row_stride, 1u, 0u, 0u);
    let product = product_of(workgroup, operands);
    let part = product / parameters.groups;
    let group = product % parameters.groups;
    let first_image = part / parameters.depth_parts * parameters.part_images;
    let last_image = min(first_image + parameters.part_images, parameters.images);
    let first_depth = part % parameters.depth_parts * parameters.part_depths;
    let inner = min(parameters.part_depths, parameters.inner - first_depth);
    operands.inner = inner;

    let own = place_of(workgroup, lane, operands);
    let place = Place(own.row, own.column + parameters.first_column);
    let own_row = lane / COLUMN_LANES * OWN_ROWS;
    let own_lane = lane % COLUMN_LANES;
    let first_row = place.row - own_row;
    let first_column = place.column - own_lane * 4u;
    var columns: array<Pixel, 4u * COLUMN_SETS>;
    @unroll for (var i = 0u; i < 4u * COLUMN_SETS; i++) {
        let column = first_column + staged_columns(lane, i / 4u) + i % 4u;
        columns[i] = pixel_of_column(min(column, parameters.columns - 1u)); // beyond the last it is not stored
    }
    let step = digits_of(DEPTH, parameters.depth_height, parameters.depth_width);
    var sums: array<vec4<f32>, ROWS * COLUMN_VECTORS>;
    for (var image = first_image; image < last_image; image++) {
        let a_start = group * parameters.a_group + image * parameters.a_image + first_depth;
        let b_start = group * parameters.b_group + image * parameters.b_image;
        var depths: array<Digits, DEPTH_SETS>;
        @unroll for (var i = 0u; i < DEPTH_SETS; i++) {
            depths[i] = digits_of(first_depth + staged_depth(lane, i), parameters.depth_height, parameters.depth_width);
        }
        for (var start = 0u; start < inner; start += DEPTH) {
            @unroll for (var i = 0u; i < TILE_ROWS * DEPTH / (4u * INVOCATIONS); i++) {
                stage_a(lane + i * INVOCATIONS, first_row, start, operands, a_start);
            }
            @unroll for (var i = 0u; i < B_VECTORS; i++) {
                let depth = staged_depth(lane, i);
                var vector = vec4<f32>(0.0);
                if start + depth < inner {
                    let pixel = pixel_of_depth(depths[select(i, 0u, ALONG_DEPTH)]);
                    @unroll for (var j = 0u; j < 4u; j++) {
                        let column = columns[select(0u, 4u * i, ALONG_DEPTH) + j];
                        if pixel.y + column.y < parameters.height && pixel.x + column.x < parameters.width {
                            vector[j] = b[b_start + pixel.at + column.at];
                        }
                    }
                }
                b_tile[depth * B_PITCH + staged_columns(lane, i) / 4u] = vector;
            }
            @unroll for (var i = 0u; i < DEPTH_SETS; i++) {
                depths[i] = sum_of(depths[i], step, parameters.depth_height, parameters.depth_width);
            }
            workgroupBarrier();
            sums = with_staged(sums, own_row, own_lane);
            workgroupBarrier();
        }
    }
    let c_start = group * parameters.c_group + part * parameters.c_part;
    @unroll(IN_REGISTERS) for (var i = 0u; i < ROWS; i++) {
        @unroll(IN_REGISTERS) for (var j = 0u; j < COLUMNS; j++) {
            let row = place.row + i;
            let column = column_at(place, j);
            if row < parameters.rows && column < parameters.columns {
                let across = column / parameters.c_columns * parameters.c_image + column % parameters.c_columns;
                stored(sums[i * COLUMN_VECTORS + j / 4u][j % 4u], c_start + row * parameters.c_columns + across);
            }
        }
    }
}
