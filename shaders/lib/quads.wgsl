// Tiles of 16 x 16 of a matrix product A B by quads of invocations: each of the four has all 16 rows, and four adjacent
// columns.
//
// For software adapters. There an element at an address that is only known at run time costs 20 to 30 instructions, in
// workgroup memory too, and a barrier keeps variables out of registers. So there is neither: an invocation loads one of
// four adjacent elements of a row of A, and the quad swaps them. Invocation l adds up the four in the order l, l ^ 1,
// l ^ 2, l ^ 3, since a swap is one instruction and a broadcast six. What is written out here sixteen times is a loop that
// the compilers of such adapters do not unroll.
//
// A vector of B costs less than its elements. Vectors of A, four rows at four depths, were faster on llvmpipe alone: on
// SwiftShader too many variables were in memory.
import package::lib::operands::{Place, a, b, b_vectors};
// Kernels of matrices choose this family by QUADS; that of convolutions has no other.
@if(QUADS) import package::lib::operands::Operands;
@else import package::lib::image_rows::Operands;
@if(QUADS) import package::lib::matrix_rows::{depth_at, four_later, offset_of_column, offset_of_depth};
@else import package::lib::image_rows::{depth_at, four_later, offset_of_column, offset_of_depth};

// How B is read: by elements with any strides; BY_DEPTH, a vector of four depths of a column, of which there are a
// multiple of four; or ACROSS, a vector of four columns at a depth, likewise. See tile.wgsl.
override B_STAGING: u32 = 0u;

const BY_DEPTH = 1u;
const ACROSS = 2u;

const QUADS_OF_WORKGROUP: u32 = 4u;
const INVOCATIONS: u32 = 4u * QUADS_OF_WORKGROUP; // of a workgroup
const ROWS: u32 = 16u; // of an invocation, and of a tile
const COLUMNS: u32 = 4u; // of an invocation
const IN_REGISTERS: bool = false; // see tile.wgsl

// The grid has a column for as many tiles as a workgroup has quads, numbered row by row, and a row for each product.
fn product_of(workgroup: vec3<u32>, operands: Operands) -> u32 {
    return workgroup.y;
}

fn place_of(workgroup: vec3<u32>, lane: u32, operands: Operands) -> Place {
    let tile = workgroup.x * QUADS_OF_WORKGROUP + lane / 4u;
    let tile_columns = (operands.columns + 15u) / 16u;
    return Place(tile / tile_columns * ROWS, tile % tile_columns * 16u + lane % 4u * 4u);
}

// The column of the sum with that number in its row.
fn column_at(place: Place, number: u32) -> u32 {
    return place.column + number;
}

// Four elements of a row of A times four rows of B. `own` is the element that this invocation loaded.
fn add_four(sum: vec4<f32>, own: f32, rows: Rows) -> vec4<f32> {
    let sum0 = fma(vec4<f32>(own), rows.b0, sum);
    let sum1 = fma(vec4<f32>(quadSwapX(own)), rows.b1, sum0);
    let sum2 = fma(vec4<f32>(quadSwapY(own)), rows.b2, sum1);
    return fma(vec4<f32>(quadSwapDiagonal(own)), rows.b3, sum2);
}

// Four rows of B, in the order own, own ^ 1, own ^ 2, own ^ 3, at the offsets `columns`.
struct Rows { b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32> }

fn rows_of_b(rows: vec4<u32>, own: u32, columns: vec4<u32>) -> Rows {
    if B_STAGING == BY_DEPTH {
        let places = (rows.x - own + columns) / 4u;
        let column0 = in_order(b_vectors[places.x], own);
        let column1 = in_order(b_vectors[places.y], own);
        let column2 = in_order(b_vectors[places.z], own);
        let column3 = in_order(b_vectors[places.w], own);
        return Rows(
            vec4<f32>(column0.x, column1.x, column2.x, column3.x), vec4<f32>(column0.y, column1.y, column2.y, column3.y),
            vec4<f32>(column0.z, column1.z, column2.z, column3.z), vec4<f32>(column0.w, column1.w, column2.w, column3.w),
        );
    } else {
        return Rows(
            b_row_at(rows.x, columns), b_row_at(rows.y, columns), b_row_at(rows.z, columns), b_row_at(rows.w, columns),
        );
    }
}

// The elements own, own ^ 1, own ^ 2 and own ^ 3.
fn in_order(depths: vec4<f32>, own: u32) -> vec4<f32> {
    let pairs = select(depths, depths.yxwz, (own & 1u) != 0u);
    return select(pairs, pairs.zwxy, (own & 2u) != 0u);
}

fn b_row_at(at: u32, columns: vec4<u32>) -> vec4<f32> {
    if B_STAGING == ACROSS {
        return b_vectors[(at + columns.x) / 4u];
    } else {
        return vec4<f32>(b[at + columns.x], b[at + columns.y], b[at + columns.z], b[at + columns.w]);
    }
}

// The sums of an invocation. A and B begin at `a_start` and `b_start` of their buffers. `subgroup` and `subgroups` are
// for matrices.wgsl alone. Beyond the last row and column the last one is computed again; what is not to be stored is
// left to the caller.
fn sums_at(
    place: Place, lane: u32, subgroup: u32, subgroups: u32, operands: Operands, a_start: u32, b_start: u32,
) -> array<vec4<f32>, ROWS> {
    let a_stride = operands.a_inner_stride;
    let last = operands.rows - 1u;
    let last_column = operands.columns - select(1u, 4u, B_STAGING == ACROSS);
    let columns = vec4<u32>(
        offset_of_column(min(place.column, last_column), operands),
        offset_of_column(min(place.column + 1u, last_column), operands),
        offset_of_column(min(place.column + 2u, last_column), operands),
        offset_of_column(min(place.column + 3u, last_column), operands),
    );
    let own = lane % 4u;
    let row0 = min(place.row + 0u, last) * operands.a_row_stride;
    let row1 = min(place.row + 1u, last) * operands.a_row_stride;
    let row2 = min(place.row + 2u, last) * operands.a_row_stride;
    let row3 = min(place.row + 3u, last) * operands.a_row_stride;
    let row4 = min(place.row + 4u, last) * operands.a_row_stride;
    let row5 = min(place.row + 5u, last) * operands.a_row_stride;
    let row6 = min(place.row + 6u, last) * operands.a_row_stride;
    let row7 = min(place.row + 7u, last) * operands.a_row_stride;
    let row8 = min(place.row + 8u, last) * operands.a_row_stride;
    let row9 = min(place.row + 9u, last) * operands.a_row_stride;
    let row10 = min(place.row + 10u, last) * operands.a_row_stride;
    let row11 = min(place.row + 11u, last) * operands.a_row_stride;
    let row12 = min(place.row + 12u, last) * operands.a_row_stride;
    let row13 = min(place.row + 13u, last) * operands.a_row_stride;
    let row14 = min(place.row + 14u, last) * operands.a_row_stride;
    let row15 = min(place.row + 15u, last) * operands.a_row_stride;
    var sum0 = vec4<f32>(0.0);
    var sum1 = vec4<f32>(0.0);
    var sum2 = vec4<f32>(0.0);
    var sum3 = vec4<f32>(0.0);
    var sum4 = vec4<f32>(0.0);
    var sum5 = vec4<f32>(0.0);
    var sum6 = vec4<f32>(0.0);
    var sum7 = vec4<f32>(0.0);
    var sum8 = vec4<f32>(0.0);
    var sum9 = vec4<f32>(0.0);
    var sum10 = vec4<f32>(0.0);
    var sum11 = vec4<f32>(0.0);
    var sum12 = vec4<f32>(0.0);
    var sum13 = vec4<f32>(0.0);
    var sum14 = vec4<f32>(0.0);
    var sum15 = vec4<f32>(0.0);
    let a_offset = own * a_stride;
    var a_at = a_start;
    var depth0 = depth_at(own, operands);
    var depth1 = depth_at(own ^ 1u, operands);
    var depth2 = depth_at(own ^ 2u, operands);
    var depth3 = depth_at(own ^ 3u, operands);
    var depth = 0u;
    for (; depth + 4u <= operands.inner; depth += 4u) {
        let offsets = vec4<u32>(
            offset_of_depth(depth0, operands), offset_of_depth(depth1, operands), offset_of_depth(depth2, operands),
            offset_of_depth(depth3, operands),
        );
        let rows = rows_of_b(b_start + offsets, own, columns);
        let at = a_at + a_offset;
        sum0 = add_four(sum0, a[at + row0], rows);
        sum1 = add_four(sum1, a[at + row1], rows);
        sum2 = add_four(sum2, a[at + row2], rows);
        sum3 = add_four(sum3, a[at + row3], rows);
        sum4 = add_four(sum4, a[at + row4], rows);
        sum5 = add_four(sum5, a[at + row5], rows);
        sum6 = add_four(sum6, a[at + row6], rows);
        sum7 = add_four(sum7, a[at + row7], rows);
        sum8 = add_four(sum8, a[at + row8], rows);
        sum9 = add_four(sum9, a[at + row9], rows);
        sum10 = add_four(sum10, a[at + row10], rows);
        sum11 = add_four(sum11, a[at + row11], rows);
        sum12 = add_four(sum12, a[at + row12], rows);
        sum13 = add_four(sum13, a[at + row13], rows);
        sum14 = add_four(sum14, a[at + row14], rows);
        sum15 = add_four(sum15, a[at + row15], rows);
        a_at += 4u * a_stride;
        depth0 = four_later(depth0, operands);
        depth1 = four_later(depth1, operands);
        depth2 = four_later(depth2, operands);
        depth3 = four_later(depth3, operands);
    }
    if B_STAGING != BY_DEPTH { // there `inner` is a multiple of four
        for (; depth < operands.inner; depth++) {
            let b_row = b_row_at(b_start + offset_of_depth(depth_at(depth, operands), operands), columns);
            sum0 = fma(vec4<f32>(a[a_at + row0]), b_row, sum0);
            sum1 = fma(vec4<f32>(a[a_at + row1]), b_row, sum1);
            sum2 = fma(vec4<f32>(a[a_at + row2]), b_row, sum2);
            sum3 = fma(vec4<f32>(a[a_at + row3]), b_row, sum3);
            sum4 = fma(vec4<f32>(a[a_at + row4]), b_row, sum4);
            sum5 = fma(vec4<f32>(a[a_at + row5]), b_row, sum5);
            sum6 = fma(vec4<f32>(a[a_at + row6]), b_row, sum6);
            sum7 = fma(vec4<f32>(a[a_at + row7]), b_row, sum7);
            sum8 = fma(vec4<f32>(a[a_at + row8]), b_row, sum8);
            sum9 = fma(vec4<f32>(a[a_at + row9]), b_row, sum9);
            sum10 = fma(vec4<f32>(a[a_at + row10]), b_row, sum10);
            sum11 = fma(vec4<f32>(a[a_at + row11]), b_row, sum11);
            sum12 = fma(vec4<f32>(a[a_at + row12]), b_row, sum12);
            sum13 = fma(vec4<f32>(a[a_at + row13]), b_row, sum13);
            sum14 = fma(vec4<f32>(a[a_at + row14]), b_row, sum14);
            sum15 = fma(vec4<f32>(a[a_at + row15]), b_row, sum15);
            a_at += a_stride;
        }
    }
    return array<vec4<f32>, ROWS>(
        sum0, sum1, sum2, sum3, sum4, sum5, sum6, sum7, sum8, sum9, sum10, sum11, sum12, sum13, sum14, sum15,
    );
}
