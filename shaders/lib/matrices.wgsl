// A tile of a matrix product A B by a workgroup whose subgroups multiply subgroup matrices, on the matrix units of
// GPUs. For Chromium and Dawn, where the user asks for it; no GPU has run it. See tile.wgsl.
//
// A few columns of A and rows of B at a time are staged in workgroup memory, both by rows, whatever their strides: so
// all matrices are loaded by rows, at multiples of 16 bytes, and beyond the last depth there are zeros. The tile has
// four blocks. A subgroup computes one of them, or more where subgroups are so large that there are fewer than four.
// The sums go through workgroup memory to the invocations, each of which has some rows and columns of the tile.
import package::lib::operands::{Operands, Place, a, b};
@if(HALVES) import package::lib::element_f16::{Element, PADDING};
@else import package::lib::element_f32::{Element, PADDING};

// `optirs_web/runtime/subgroup_matrices.py` chooses. A tile has twice the rows and columns of a block, a block a
// multiple of those of a matrix, and the depth is a multiple of MATRIX_INNER.
override TILE_ROWS: u32 = 32u;
override TILE_COLUMNS: u32 = 64u;
override DEPTH: u32 = 16u;
override MATRIX_ROWS: u32 = 8u;
override MATRIX_COLUMNS: u32 = 8u;
override MATRIX_INNER: u32 = 8u;
override LARGEST_SUBGROUP: u32 = 32u; // that the adapter has, 128 at most

const IN_REGISTERS: bool = true; // see tile.wgsl
const INVOCATIONS: u32 = 128u; // of a workgroup, a multiple of every size of subgroups
const COLUMNS: u32 = 4u; // of an invocation
const COLUMN_LANES: u32 = TILE_COLUMNS / COLUMNS;
const ROWS: u32 = TILE_ROWS / (INVOCATIONS / COLUMN_LANES);

const BLOCKS: u32 = 4u;
const BLOCK_ROWS: u32 = TILE_ROWS / 2u;
const BLOCK_COLUMNS: u32 = TILE_COLUMNS / 2u;
const MOST_BLOCKS: u32 = max(1u, BLOCKS * LARGEST_SUBGROUP / INVOCATIONS); // of a subgroup
const DOWN: u32 = BLOCK_ROWS / MATRIX_ROWS; // matrices of a block
const ACROSS: u32 = BLOCK_COLUMNS / MATRIX_COLUMNS;

// Elements from one row to the next: 16 bytes more than a row has, against conflicts of banks.
const A_PITCH: u32 = DEPTH + PADDING;
const B_PITCH: u32 = TILE_COLUMNS + PADDING;
const C_PITCH: u32 = TILE_COLUMNS + 4u;

var<workgroup> a_tile: array<Element, TILE_ROWS * A_PITCH>;
var<workgroup> b_tile: array<Element, DEPTH * B_PITCH>;
var<workgroup> c_tile: array<f32, TILE_ROWS * C_PITCH>;

// The grid has a column for each tile of columns, and the tiles of rows of one product after the other.
fn product_of(workgroup: vec3<u32>, operands: Operands) -> u32 {
    return workgroup.y / ((operands.rows + TILE_ROWS - 1u) / TILE_ROWS);
}

fn place_of(workgroup: vec3<u32>, lane: u32, operands: Operands) -> Place {
    let first_row = workgroup.y % ((operands.rows + TILE_ROWS - 1u) / TILE_ROWS) * TILE_ROWS;
    return Place(first_row + lane / COLUMN_LANES * ROWS, workgroup.x * TILE_COLUMNS + lane % COLUMN_LANES);
}

// The column of the sum with that number in its row.
fn column_at(place: Place, number: u32) -> u32 {
    return place.column + number * COLUMN_LANES;
}

// Neighbouring invocations stage neighbouring elements of a buffer, along whichever axis is contiguous. Beyond the last
// row and column the last is taken again, for sums that are not stored.
fn stage_a(number: u32, first_row: u32, start: u32, operands: Operands, a_start: u32) {
    let is_by_row = operands.a_inner_stride == 1u;
    let across = select(number % TILE_ROWS, number / DEPTH, is_by_row);
    let depth = select(number / TILE_ROWS, number % DEPTH, is_by_row);
    var element = 0.0;
    if start + depth < operands.inner {
        let row = min(first_row + across, operands.rows - 1u);
        element = a[a_start + row * operands.a_row_stride + (start + depth) * operands.a_inner_stride];
    }
    a_tile[across * A_PITCH + depth] = Element(element);
}

fn stage_b(number: u32, first_column: u32, start: u32, operands: Operands, b_start: u32) {
    let is_by_column = operands.b_inner_stride == 1u;
    let across = select(number % TILE_COLUMNS, number / DEPTH, is_by_column);
    let depth = select(number / TILE_COLUMNS, number % DEPTH, is_by_column);
    var element = 0.0;
    if start + depth < operands.inner {
        let column = min(first_column + across, operands.columns - 1u);
        element = b[b_start + (start + depth) * operands.b_inner_stride + column * operands.b_column_stride];
    }
    b_tile[depth * B_PITCH + across] = Element(element);
}

// The sums of an invocation, row by row. A and B begin at `a_start` and `b_start` of their buffers.
fn sums_at(
    place: Place, lane: u32, subgroup: u32, subgroups: u32, operands: Operands, a_start: u32, b_start: u32,
) -> array<vec4<f32>, ROWS> {
    let own_row = lane / COLUMN_LANES * ROWS;
    let own_column = lane % COLUMN_LANES;
    let first_row = place.row - own_row;
    let first_column = place.column - own_column;
    var sums: array<subgroup_matrix_result<f32, MATRIX_COLUMNS, MATRIX_ROWS>, MOST_BLOCKS * DOWN * ACROSS>;
    for (var start = 0u; start < operands.inner; start += DEPTH) {
        for (var i = 0u; i < TILE_ROWS * DEPTH; i += INVOCATIONS) {
            stage_a(lane + i, first_row, start, operands, a_start);
        }
        for (var i = 0u; i < TILE_COLUMNS * DEPTH; i += INVOCATIONS) {
            stage_b(lane + i, first_column, start, operands, b_start);
        }
        workgroupBarrier();
        @unroll for (var k = 0u; k < MOST_BLOCKS; k++) {
            let block = subgroup + k * subgroups;
            if block < BLOCKS {
                let a_at = block / 2u * BLOCK_ROWS * A_PITCH;
                let b_at = block % 2u * BLOCK_COLUMNS;
                @unroll for (var depth = 0u; depth < DEPTH; depth += MATRIX_INNER) {
                    var right: array<subgroup_matrix_right<Element, MATRIX_COLUMNS, MATRIX_INNER>, ACROSS>;
                    @unroll for (var j = 0u; j < ACROSS; j++) {
                        right[j] = subgroupMatrixLoad<
                            subgroup_matrix_right<Element, MATRIX_COLUMNS, MATRIX_INNER>, row_major
                        >(&b_tile, b_at + (depth * B_PITCH + j * MATRIX_COLUMNS), B_PITCH);
                    }
                    @unroll for (var i = 0u; i < DOWN; i++) {
                        let left = subgroupMatrixLoad<subgroup_matrix_left<Element, MATRIX_INNER, MATRIX_ROWS>, row_major>(
                            &a_tile, a_at + (i * MATRIX_ROWS * A_PITCH + depth), A_PITCH
                        );
                        @unroll for (var j = 0u; j < ACROSS; j++) {
                            sums[k * (DOWN * ACROSS) + i * ACROSS + j] = subgroupMatrixMultiplyAccumulate(
                                left, right[j], sums[k * (DOWN * ACROSS) + i * ACROSS + j]
                            );
                        }
                    }
                }
            }
        }
        workgroupBarrier();
    }
    @unroll for (var k = 0u; k < MOST_BLOCKS; k++) {
        let block = subgroup + k * subgroups;
        if block < BLOCKS {
            let at = block / 2u * BLOCK_ROWS * C_PITCH + block % 2u * BLOCK_COLUMNS;
            @unroll for (var i = 0u; i < DOWN; i++) {
                @unroll for (var j = 0u; j < ACROSS; j++) {
                    subgroupMatrixStore<row_major>(
                        &c_tile,
                        at + (i * MATRIX_ROWS * C_PITCH + j * MATRIX_COLUMNS),
                        sums[k * (DOWN * ACROSS) + i * ACROSS + j],
                        C_PITCH,
                    );
                }
            }
        }
    }
    workgroupBarrier();
    var own: array<vec4<f32>, ROWS>;
    @unroll for (var i = 0u; i < ROWS; i++) {
        @unroll for (var j = 0u; j < COLUMNS; j++) {
            own[i][j] = c_tile[(own_row + i) * C_PITCH + own_column + j * COLUMN_LANES];
        }
    }
    return own;
}
