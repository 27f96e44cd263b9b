// Products of many matrices at once, all f32: C = alpha A B + beta D + diagonal I for each entry of a table, which says
// where in their buffers the matrices of that product begin. Any strides, so that a transposed operand costs no copy;
// D has those of C, or is the old C if `in_place` is 1. `inner` may be 0: then the product is left out.
//
// alpha and beta are numbers, times a word of the tensor's row of `tensor_scalars` if `alpha_word` or `beta_word` is not
// 0. A product is left out whose tensor is not active in this step, or whose word `gate_word` of that row is zero.
import package::lib::operands::Operands;
@if(QUADS) import package::lib::quads::{COLUMNS, IN_REGISTERS, INVOCATIONS, ROWS, column_at, place_of, product_of, sums_at};
@elif(MATRICES) import package::lib::matrices::{COLUMNS, IN_REGISTERS, INVOCATIONS, ROWS, column_at, place_of, product_of, sums_at};
@else import package::lib::tile::{COLUMNS, IN_REGISTERS, INVOCATIONS, ROWS, column_at, place_of, product_of, sums_at};

struct BatchedParameters {
    rows: u32,
    columns: u32,
    inner: u32,
    a_row_stride: u32,
    a_inner_stride: u32,
    b_inner_stride: u32,
    b_column_stride: u32,
    c_row_stride: u32,
    c_column_stride: u32,
    row_words: u32,
    gate_word: u32,
    alpha_word: u32,
    beta_word: u32,
    in_place: u32,
    alpha: f32,
    beta: f32,
    diagonal: f32,
}

// A product: the number of its tensor, and the first element of each matrix.
struct Product { tensor: u32, a: u32, b: u32, c: u32, d: u32 }

// 0 and 1 are those of operands.wgsl.
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<storage, read> d: array<f32>;
@group(0) @binding(4) var<storage, read> products: array<Product>;
@group(0) @binding(5) var<storage, read> tensor_scalars: array<u32>;
@group(0) @binding(6) var<uniform> parameters: BatchedParameters;

fn coefficient(number: f32, row: u32, word: u32) -> f32 {
    if word == 0u {
        return number;
    }
    return number * bitcast<f32>(tensor_scalars[row + word]);
}

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
) {
    let operands = Operands(
        parameters.rows, parameters.columns, parameters.inner, parameters.a_row_stride, parameters.a_inner_stride,
        parameters.b_inner_stride, parameters.b_column_stride,
    );
    let product = products[product_of(workgroup, operands)];
    let row_of_tensor = product.tensor * parameters.row_words;
    if tensor_scalars[row_of_tensor] != 1u || tensor_scalars[row_of_tensor + parameters.gate_word] == 0u {
        return;
    }
    let place = place_of(workgroup, lane, operands);
    var sums = sums_at(place, lane, subgroup, subgroups, operands, product.a, product.b);
    let alpha = coefficient(parameters.alpha, row_of_tensor, parameters.alpha_word);
    let beta = coefficient(parameters.beta, row_of_tensor, parameters.beta_word);
    @unroll(IN_REGISTERS) for (var i = 0u; i < ROWS; i++) {
        @unroll(IN_REGISTERS) for (var j = 0u; j < COLUMNS; j++) {
            let row = place.row + i;
            let column = column_at(place, j);
            if row < parameters.rows && column < parameters.columns {
                let at = row * parameters.c_row_stride + column * parameters.c_column_stride;
                var value = alpha * sums[i * (COLUMNS / 4u) + j / 4u][j % 4u];
                if parameters.in_place != 0u {
                    value += beta * c[product.c + at];
                } else if parameters.beta != 0.0 {
                    value += beta * d[product.d + at];
                }
                if row == column {
                    value += parameters.diagonal;
                }
                c[product.c + at] = value;
            }
        }
    }
}
