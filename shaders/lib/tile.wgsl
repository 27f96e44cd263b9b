// A tile of a matrix product A B by a workgroup, which stages a few columns of A and rows of B at a time in workgroup
// memory. For GPUs; see quads.wgsl.
//
// Workgroup memory holds vectors of four. Where an operand is read by vectors they are stored as in its buffer: four
// depths of a row or column if its inner axis is contiguous (BY_DEPTH: A as it is, B transposed), otherwise four rows or
// columns at one depth (ACROSS). So nothing is transposed, and an invocation reads OWN_ROWS + OWN_COLUMNS vectors for
// four depths in either form. Where an operand is read by elements, with any strides, vectors are stored ACROSS.
import package::lib::operands::{Operands, Place, a, a_vectors, b, b_vectors};

// `optirs_web/runtime/products.py` chooses, and a tuner may. TILE_ROWS DEPTH and TILE_COLUMNS DEPTH are multiples of four
// times the number of invocations, and all but the stagings are multiples of four.
override TILE_ROWS: u32 = 32u;
override TILE_COLUMNS: u32 = 32u;
override OWN_ROWS: u32 = 4u; // of an invocation
override OWN_COLUMNS: u32 = 4u;
override DEPTH: u32 = 8u;
override A_STAGING: u32 = 0u; // BY_ELEMENTS
override B_STAGING: u32 = 0u;
// For GPUs, where the sums are to stay in registers: no index of them is computed at run time, for which what follows
// them is written out for each. Compilers for processors take too long then.
override IN_REGISTERS: bool = false;

const BY_ELEMENTS = 0u;
const BY_DEPTH = 1u;
const ACROSS = 2u;

const COLUMN_LANES: u32 = TILE_COLUMNS / OWN_COLUMNS;
const INVOCATIONS: u32 = COLUMN_LANES * (TILE_ROWS / OWN_ROWS); // of a workgroup
const ROWS: u32 = OWN_ROWS;
const COLUMNS: u32 = OWN_COLUMNS;
const ROW_VECTORS: u32 = OWN_ROWS / 4u;
const COLUMN_VECTORS: u32 = OWN_COLUMNS / 4u;

// Depths that an invocation reads together.
const STEP: u32 = select(1u, 4u, A_STAGING == BY_DEPTH || B_STAGING == BY_DEPTH);

// Vectors from one row or column to the next (BY_DEPTH), or from one depth to the next: one more than there are, for
// otherwise invocations that store at once would meet in the same bank of the memory.
const A_PITCH: u32 = select(TILE_ROWS, DEPTH, A_STAGING == BY_DEPTH) / 4u + 1u;
const B_PITCH: u32 = select(TILE_COLUMNS, DEPTH, B_STAGING == BY_DEPTH) / 4u + 1u;

var<workgroup> a_tile: array<vec4<f32>, A_PITCH * select(DEPTH, TILE_ROWS, A_STAGING == BY_DEPTH)>;
var<workgroup> b_tile: array<vec4<f32>, B_PITCH * select(DEPTH, TILE_COLUMNS, B_STAGING == BY_DEPTH)>;

// The grid has a column for each tile of columns, and the tiles of rows of one product after the other.
fn product_of(workgroup: vec3<u32>, operands: Operands) -> u32 {
    return workgroup.y / ((operands.rows + TILE_ROWS - 1u) / TILE_ROWS);
}

fn place_of(workgroup: vec3<u32>, lane: u32, operands: Operands) -> Place {
    let first_row = workgroup.y % ((operands.rows + TILE_ROWS - 1u) / TILE_ROWS) * TILE_ROWS;
    let own_column = lane % COLUMN_LANES * select(4u, 1u, B_STAGING == BY_DEPTH);
    return Place(first_row + lane / COLUMN_LANES * OWN_ROWS, workgroup.x * TILE_COLUMNS + own_column);
}

// The column of the sum with that number in its row.
fn column_at(place: Place, number: u32) -> u32 {
    let across = number / 4u * (4u * COLUMN_LANES) + number % 4u;
    return place.column + select(across, number * COLUMN_LANES, B_STAGING == BY_DEPTH);
}

// A vector that is staged: its first row or column in the tile, and its depth there, or its first one.
struct Staged { across: u32, depth: u32 }

// Neighbouring invocations stage neighbouring elements of a buffer, along whichever axis is contiguous.
fn staged_of(number: u32, size: u32, staging: u32, inner_stride: u32) -> Staged {
    if staging == BY_DEPTH {
        return Staged(number / (DEPTH / 4u), number % (DEPTH / 4u) * 4u);
    }
    if staging == BY_ELEMENTS && inner_stride == 1u {
        return Staged(number / DEPTH * 4u, number % DEPTH);
    }
    return Staged(number % (size / 4u) * 4u, number / (size / 4u));
}

// Beyond the last row and column the last is taken again, for sums that are not stored.
fn stage_a(number: u32, first_row: u32, start: u32, operands: Operands, a_start: u32) {
    let place = staged_of(number, TILE_ROWS, A_STAGING, operands.a_inner_stride);
    let depth = start + place.depth;
    var vector = vec4<f32>(0.0); // beyond the last depth
    if depth < operands.inner {
        let at = a_start + depth * operands.a_inner_stride;
        if A_STAGING == BY_ELEMENTS {
            @unroll(IN_REGISTERS) for (var i = 0u; i < 4u; i++) {
                let row = min(first_row + place.across + i, operands.rows - 1u);
                vector[i] = a[at + row * operands.a_row_stride];
            }
        } else {
            let row = min(first_row + place.across, operands.rows - select(4u, 1u, A_STAGING == BY_DEPTH));
            vector = a_vectors[(at + row * operands.a_row_stride) / 4u];
        }
    }
    if A_STAGING == BY_DEPTH {
        a_tile[place.across * A_PITCH + place.depth / 4u] = vector;
    } else {
        a_tile[place.depth * A_PITCH + place.across / 4u] = vector;
    }
}

fn stage_b(number: u32, first_column: u32, start: u32, operands: Operands, b_start: u32) {
    let place = staged_of(number, TILE_COLUMNS, B_STAGING, operands.b_inner_stride);
    let depth = start + place.depth;
    var vector = vec4<f32>(0.0);
    if depth < operands.inner {
        let at = b_start + depth * operands.b_inner_stride;
        if B_STAGING == BY_ELEMENTS {
            @unroll(IN_REGISTERS) for (var i = 0u; i < 4u; i++) {
                let column = min(first_column + place.across + i, operands.columns - 1u);
                vector[i] = b[at + column * operands.b_column_stride];
            }
        } else {
            let column = min(first_column + place.across, operands.columns - select(4u, 1u, B_STAGING == BY_DEPTH));
            vector = b_vectors[(at + column * operands.b_column_stride) / 4u];
        }
    }
    if B_STAGING == BY_DEPTH {
        b_tile[place.across * B_PITCH + place.depth / 4u] = vector;
    } else {
        b_tile[place.depth * B_PITCH + place.across / 4u] = vector;
    }
}

// Adds the products of the staged columns and rows to the sums.
fn with_staged(
    before: array<vec4<f32>, ROWS * COLUMN_VECTORS>, own_row: u32, own_lane: u32,
) -> array<vec4<f32>, ROWS * COLUMN_VECTORS> {
    var sums = before;
    @unroll(IN_REGISTERS) for (var depth = 0u; depth < DEPTH; depth += STEP) {
        // Four depths of each row (BY_DEPTH), or all rows by fours at each depth; the same of columns.
        var a_own: array<vec4<f32>, ROW_VECTORS * STEP>;
        @unroll for (var i = 0u; i < ROW_VECTORS * STEP; i++) {
            let across = (depth + i / ROW_VECTORS) * A_PITCH + own_row / 4u + i % ROW_VECTORS;
            a_own[i] = a_tile[select(across, (own_row + i) * A_PITCH + depth / 4u, A_STAGING == BY_DEPTH)];
        }
        var b_own: array<vec4<f32>, COLUMN_VECTORS * STEP>;
        @unroll for (var j = 0u; j < COLUMN_VECTORS * STEP; j++) {
            let across = (depth + j / COLUMN_VECTORS) * B_PITCH + own_lane + j % COLUMN_VECTORS * COLUMN_LANES;
            let by_depth = (own_lane + j * COLUMN_LANES) * B_PITCH + depth / 4u;
            b_own[j] = b_tile[select(across, by_depth, B_STAGING == BY_DEPTH)];
        }
        @unroll for (var d = 0u; d < STEP; d++) {
            @unroll for (var j = 0u; j < COLUMN_VECTORS; j++) {
                let b_row = select(
                    b_own[d * COLUMN_VECTORS + j],
                    vec4<f32>(b_own[4u * j][d], b_own[4u * j + 1u][d], b_own[4u * j + 2u][d], b_own[4u * j + 3u][d]),
                    B_STAGING == BY_DEPTH,
                );
                @unroll for (var i = 0u; i < OWN_ROWS; i++) {
                    sums[i * COLUMN_VECTORS + j] = fma(
                        vec4<f32>(select(a_own[d * ROW_VECTORS + i / 4u][i % 4u], a_own[i][d], A_STAGING == BY_DEPTH)),
                        b_row,
                        sums[i * COLUMN_VECTORS + j],
                    );
                }
            }
        }
    }
    return sums;
}

// The sums of an invocation, row by row. A and B begin at `a_start` and `b_start` of their buffers. `subgroup` and
// `subgroups` are for matrices.wgsl alone.
fn sums_at(
    place: Place, lane: u32, subgroup: u32, subgroups: u32, operands: Operands, a_start: u32, b_start: u32,
) -> array<vec4<f32>, ROWS * COLUMN_VECTORS> {
    let own_row = lane / COLUMN_LANES * OWN_ROWS;
    let own_lane = lane % COLUMN_LANES;
    let first_row = place.row - own_row;
    let first_column = place.column - own_lane * select(4u, 1u, B_STAGING == BY_DEPTH);
    var sums: array<vec4<f32>, ROWS * COLUMN_VECTORS>;
    for (var start = 0u; start < operands.inner; start += DEPTH) {
        @unroll for (var i = 0u; i < TILE_ROWS * DEPTH / (4u * INVOCATIONS); i++) {
            stage_a(lane + i * INVOCATIONS, first_row, start, operands, a_start);
        }
        @unroll for (var i = 0u; i < TILE_COLUMNS * DEPTH / (4u * INVOCATIONS); i++) {
            stage_b(lane + i * INVOCATIONS, first_column, start, operands, b_start);
        }
        workgroupBarrier();
        sums = with_staged(sums, own_row, own_lane);
        workgroupBarrier();
    }
    return sums;
}
