// Tiles of attention and of its gradients (Dao et al. 2022, arXiv:2205.14135), all f32: a workgroup owns OWN_TILE rows
// of one matrix and meets the rows of another, 32 at a time. The scores are never stored.
//
// The forward pass and the gradient of the queries own queries and meet keys; the gradients of keys and of values own
// keys and meet queries. Values go along with the rows: those of the keys, and for queries the gradient of the result.
//
// Workgroup memory holds vectors: of four depths of a row for products, of four columns of a row for sums, and of the
// weights of four of the others. An invocation reads OWN_ROWS + 4 vectors for 16 OWN_ROWS multiply-adds of a product,
// and OWN_ROWS + 4 column_tiles vectors for 16 OWN_ROWS column_tiles multiply-adds of a sum.

struct AttentionParameters {
    own_rows: u32,
    other_rows: u32,
    depth: u32,        // columns of queries and keys
    value_depth: u32,  // columns of values
    columns: u32,      // of the result
    first_column: u32, // of those that this dispatch computes
    is_causal: u32,
    owns_queries: u32,
    adds_values: u32,  // the result adds up values of the others; otherwise the others themselves
    mask_kind: u32,    // 0: none, 1: bool, 2: f32
    scale: f32,
    result_scale: f32,
    first_product: u32,
    batch_inner: u32,
    own_start: u32, own_outer: u32, own_batch: u32, own_row: u32, own_column: u32,
    other_start: u32, other_outer: u32, other_batch: u32, other_row: u32, other_column: u32,
    own_values_start: u32, own_values_outer: u32, own_values_batch: u32, own_values_row: u32, own_values_column: u32,
    other_values_start: u32, other_values_outer: u32, other_values_batch: u32, other_values_row: u32,
    other_values_column: u32,
    mask_start: u32, mask_outer: u32, mask_batch: u32, mask_own: u32, mask_other: u32,
}

@group(0) @binding(0) var<storage, read> own: array<f32>;
@group(0) @binding(0) var<storage, read> own_vectors: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> other: array<f32>;
@group(0) @binding(1) var<storage, read> other_vectors: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> own_values: array<f32>;
@group(0) @binding(2) var<storage, read> own_values_vectors: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> other_values: array<f32>;
@group(0) @binding(3) var<storage, read> other_values_vectors: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> mask: array<u32>;
@group(0) @binding(5) var<storage, read_write> result: array<f32>;
@group(0) @binding(5) var<storage, read_write> result_vectors: array<vec4<f32>>;
// 6 is the kernel's own.
@group(0) @binding(7) var<uniform> parameters: AttentionParameters;

// `optirs_web/runtime/attention_tiles.py` chooses. OWN_TILE is 32 or 64, OWN_ROWS 4 or 8, column_tiles 1, 2 or 4.
override OWN_TILE: u32 = 32u; // owned rows of a workgroup
override OWN_ROWS: u32 = 4u;  // owned rows of an invocation
override column_tiles: u32 = 1u; // tiles of 32 columns of the result that a dispatch computes
// The four matrices and the result are read and written by vectors of four columns, which have to be contiguous.
override BY_VECTORS: bool = false;
// For GPUs; see tile.wgsl.
override IN_REGISTERS: bool = false;

const OTHER_TILE: u32 = 32u;
const LANES: u32 = 8u; // invocations with the same owned rows, each with four of the others or of the columns
const ROW_LANES: u32 = OWN_TILE / OWN_ROWS;
const INVOCATIONS: u32 = LANES * ROW_LANES; // of a workgroup
const ROWS: u32 = OWN_ROWS;
const ROW_VECTORS: u32 = OWN_ROWS / 4u;
const COLUMN_TILES: u32 = column_tiles;
const DEPTH: u32 = 16u; // columns that are staged at a time for products
const PITCH: u32 = 5u;  // vectors from row to row of those: one more than a row has, as in tile.wgsl
const OTHERS_AT: u32 = OWN_TILE * PITCH;
const ROW_FOURS: u32 = LANES * column_tiles; // vectors of a row that is added up
const GROUPS: u32 = LANES / column_tiles; // of four rows each, that are staged at a time for sums

const LOWEST: f32 = -3.4028235e38;
const LOWEST_BITS: u32 = 0xff7fffffu;
const MINUS_INFINITY_BITS: u32 = 0xff800000u;

// Rows of the owned and of the others for products; 256 vectors of the others for sums; or what `reduced` combines.
var<workgroup> staged: array<vec4<f32>, (OWN_TILE + OTHER_TILE) * PITCH>;
var<workgroup> weights: array<vec4<f32>, OWN_TILE * LANES>;

// The product of a workgroup by both axes of the batch, and its first row. All of its invocations have the same.
struct Place { outer: u32, within: u32, first_own: u32 }

fn product_number(workgroup_y: u32) -> u32 {
    return parameters.first_product + workgroup_y;
}

fn place_of(product: u32, tile: u32) -> Place {
    return Place(product / parameters.batch_inner, product % parameters.batch_inner, tile * OWN_TILE);
}

// Owned rows of an invocation, and the four others whose weights it computes, in their tiles. Neighbours have
// neighbouring rows, so that they read different banks of workgroup memory.
fn own_row_of(lane: u32, number: u32) -> u32 {
    return lane / LANES + number * ROW_LANES;
}

fn other_row_of(lane: u32, number: u32) -> u32 {
    return lane % LANES + number * LANES;
}

// The first of four adjacent columns.
fn column_of(lane: u32, column_tile: u32) -> u32 {
    return parameters.first_column + (lane % LANES + column_tile * LANES) * 4u;
}

// Which tiles of the others there are to meet: a query meets no later key.
fn first_other(place: Place) -> u32 {
    return select(0u, place.first_own, parameters.is_causal != 0u && parameters.owns_queries == 0u);
}

fn end_of_others(place: Place) -> u32 {
    let is_cut = parameters.is_causal != 0u && parameters.owns_queries != 0u;
    return select(parameters.other_rows, min(parameters.other_rows, place.first_own + OWN_TILE), is_cut);
}

// Whether each owned row of the workgroup forms a pair with each of these others.
fn meet_all(place: Place, first_other_row: u32) -> bool {
    let are_inside =
        place.first_own + OWN_TILE <= parameters.own_rows && first_other_row + OTHER_TILE <= parameters.other_rows;
    let are_earlier = select(
        place.first_own + OWN_TILE <= first_other_row + 1u, first_other_row + OTHER_TILE <= place.first_own + 1u,
        parameters.owns_queries != 0u,
    );
    return are_inside && (parameters.is_causal == 0u || are_earlier);
}

fn is_pair(own_row: u32, other_row: u32) -> bool {
    let query = select(other_row, own_row, parameters.owns_queries != 0u);
    let key = select(own_row, other_row, parameters.owns_queries != 0u);
    let is_inside = own_row < parameters.own_rows && other_row < parameters.other_rows;
    return is_inside && (parameters.is_causal == 0u || key <= query);
}

// The score of a pair with the mask applied: added, or LOWEST where it hides the pair.
fn masked(score: f32, place: Place, own_row: u32, other_row: u32) -> f32 {
    let at = parameters.mask_start + place.outer * parameters.mask_outer + place.within * parameters.mask_batch
        + min(own_row, parameters.own_rows - 1u) * parameters.mask_own
        + min(other_row, parameters.other_rows - 1u) * parameters.mask_other;
    let word = mask[at];
    let is_bool = parameters.mask_kind == 1u;
    let hides = select(word == LOWEST_BITS || word == MINUS_INFINITY_BITS, word == 0u, is_bool);
    return select(select(score + bitcast<f32>(word), score, is_bool), LOWEST, hides);
}

// Whether a score belongs to no pair, or the mask hides it.
fn is_hidden(score: f32) -> bool {
    let bits = bitcast<u32>(score);
    return bits == LOWEST_BITS || bits == MINUS_INFINITY_BITS;
}

// The scores of products of each owned row with four others: scaled and masked, and LOWEST or less where there is no
// pair. They are the logarithms of the weights, up to a term that all weights of a query share.
fn scores_of(found: array<vec4<f32>, ROWS>, place: Place, lane: u32, first_other_row: u32) -> array<vec4<f32>, ROWS> {
    var scores = found;
    @unroll(IN_REGISTERS) for (var i = 0u; i < ROWS; i++) {
        scores[i] *= parameters.scale;
    }
    if parameters.mask_kind != 0u {
        @unroll(IN_REGISTERS) for (var i = 0u; i < ROWS; i++) {
            @unroll(IN_REGISTERS) for (var j = 0u; j < 4u; j++) {
                let row = place.first_own + own_row_of(lane, i);
                scores[i][j] = masked(scores[i][j], place, row, first_other_row + other_row_of(lane, j));
            }
        }
    }
    if !meet_all(place, first_other_row) {
        @unroll(IN_REGISTERS) for (var i = 0u; i < ROWS; i++) {
            @unroll(IN_REGISTERS) for (var j = 0u; j < 4u; j++) {
                let is_one = is_pair(place.first_own + own_row_of(lane, i), first_other_row + other_row_of(lane, j));
                scores[i][j] = select(LOWEST, scores[i][j], is_one);
            }
        }
    }
    return scores;
}

// Four columns of a matrix from `column` on. Beyond the last one of `columns` there are zeros; beyond the last row
// the last is taken again, for products that are not added and sums that are not stored.
fn own_four(of_values: bool, start: u32, row: u32, column: u32, columns: u32) -> vec4<f32> {
    let p = parameters;
    let stride = select(p.own_row, p.own_values_row, of_values);
    let at = start + min(row, p.own_rows - 1u) * stride;
    var four = vec4<f32>(0.0);
    if BY_VECTORS {
        if column < columns {
            if of_values {
                four = own_values_vectors[(at + column) / 4u];
            } else {
                four = own_vectors[(at + column) / 4u];
            }
        }
    } else {
        let column_stride = select(p.own_column, p.own_values_column, of_values);
        @unroll(IN_REGISTERS) for (var i = 0u; i < 4u; i++) {
            if column + i < columns {
                let element = at + (column + i) * column_stride;
                if of_values {
                    four[i] = own_values[element];
                } else {
                    four[i] = own[element];
                }
            }
        }
    }
    return four;
}

fn other_four(of_values: bool, start: u32, row: u32, column: u32, columns: u32) -> vec4<f32> {
    let p = parameters;
    let stride = select(p.other_row, p.other_values_row, of_values);
    let at = start + min(row, p.other_rows - 1u) * stride;
    var four = vec4<f32>(0.0);
    if BY_VECTORS {
        if column < columns {
            if of_values {
                four = other_values_vectors[(at + column) / 4u];
            } else {
                four = other_vectors[(at + column) / 4u];
            }
        }
    } else {
        let column_stride = select(p.other_column, p.other_values_column, of_values);
        @unroll(IN_REGISTERS) for (var i = 0u; i < 4u; i++) {
            if column + i < columns {
                let element = at + (column + i) * column_stride;
                if of_values {
                    four[i] = other_values[element];
                } else {
                    four[i] = other[element];
                }
            }
        }
    }
    return four;
}

fn own_start(place: Place, of_values: bool) -> u32 {
    let p = parameters;
    return select(
        p.own_start + place.outer * p.own_outer + place.within * p.own_batch,
        p.own_values_start + place.outer * p.own_values_outer + place.within * p.own_values_batch, of_values,
    );
}

fn other_start(place: Place, of_values: bool) -> u32 {
    let p = parameters;
    return select(
        p.other_start + place.outer * p.other_outer + place.within * p.other_batch,
        p.other_values_start + place.outer * p.other_values_outer + place.within * p.other_values_batch, of_values,
    );
}

// Products of the owned rows of an invocation with four of the others, or of their values.
fn products(place: Place, lane: u32, first_other_row: u32, of_values: bool) -> array<vec4<f32>, ROWS> {
    let columns = select(parameters.depth, parameters.value_depth, of_values);
    let own_at = own_start(place, of_values);
    let other_at = other_start(place, of_values);
    var sums: array<vec4<f32>, ROWS>;
    for (var start = 0u; start < columns; start += DEPTH) {
        let first = start + lane % 4u * 4u;
        @unroll(IN_REGISTERS) for (var i = 0u; i < OWN_ROWS / 2u; i++) {
            let row = lane / 4u + i * (INVOCATIONS / 4u);
            staged[row * PITCH + lane % 4u] = own_four(of_values, own_at, place.first_own + row, first, columns);
        }
        @unroll(IN_REGISTERS) for (var i = 0u; i < 4u * OTHER_TILE / INVOCATIONS; i++) {
            let row = lane / 4u + i * (INVOCATIONS / 4u);
            staged[OTHERS_AT + row * PITCH + lane % 4u] =
                other_four(of_values, other_at, first_other_row + row, first, columns);
        }
        workgroupBarrier();
        for (var depth = 0u; depth < DEPTH / 4u; depth++) {
            var own_depths: array<vec4<f32>, ROWS>;
            @unroll for (var i = 0u; i < ROWS; i++) {
                own_depths[i] = staged[own_row_of(lane, i) * PITCH + depth];
            }
            var other_depths: array<vec4<f32>, 4>;
            @unroll for (var j = 0u; j < 4u; j++) {
                other_depths[j] = staged[OTHERS_AT + other_row_of(lane, j) * PITCH + depth];
            }
            @unroll for (var d = 0u; d < 4u; d++) {
                let others = vec4<f32>(other_depths[0][d], other_depths[1][d], other_depths[2][d], other_depths[3][d]);
                @unroll for (var i = 0u; i < ROWS; i++) {
                    sums[i] = fma(vec4<f32>(own_depths[i][d]), others, sums[i]);
                }
            }
        }
        workgroupBarrier();
    }
    return sums;
}

// Keeps the weights of the owned rows of an invocation with four others, for `with_weighted`.
fn keep_weights(of_rows: array<vec4<f32>, ROWS>, lane: u32) {
    var vectors = of_rows;
    @unroll(IN_REGISTERS) for (var i = 0u; i < ROWS; i++) {
        weights[own_row_of(lane, i) * LANES + lane % LANES] = vectors[i];
    }
}

// Adds the others, or their values, times `weights` to the sums of the owned rows and columns of an invocation.
fn with_weighted(so_far: array<vec4<f32>, ROWS * COLUMN_TILES>, place: Place, lane: u32, first_other_row: u32)
    -> array<vec4<f32>, ROWS * COLUMN_TILES>
{
    let of_values = parameters.adds_values != 0u;
    let other_at = other_start(place, of_values);
    var sums = so_far;
    for (var group = 0u; group < LANES; group += GROUPS) {
        let first = parameters.first_column + lane % ROW_FOURS * 4u;
        @unroll(IN_REGISTERS) for (var i = 0u; i < OTHER_TILE * LANES / INVOCATIONS; i++) {
            let number = lane / ROW_FOURS + i * (INVOCATIONS / ROW_FOURS);
            // Four rows whose weights are a vector are LANES apart.
            let row = first_other_row + group + number % GROUPS + number / GROUPS * LANES;
            staged[lane + i * INVOCATIONS] = other_four(of_values, other_at, row, first, parameters.columns);
        }
        workgroupBarrier();
        for (var four = 0u; four < GROUPS; four++) {
            var of_rows: array<vec4<f32>, ROWS>;
            @unroll for (var i = 0u; i < ROWS; i++) {
                of_rows[i] = weights[own_row_of(lane, i) * LANES + group + four];
            }
            @unroll for (var j = 0u; j < 4u; j++) {
                @unroll for (var tile = 0u; tile < COLUMN_TILES; tile++) {
                    let columns = staged[(j * GROUPS + four) * ROW_FOURS + tile * LANES + lane % LANES];
                    @unroll for (var i = 0u; i < ROWS; i++) {
                        let at = i * COLUMN_TILES + tile;
                        sums[at] = fma(vec4<f32>(of_rows[i][j]), columns, sums[at]);
                    }
                }
            }
        }
        workgroupBarrier();
    }
    return sums;
}

// Stores four columns of an owned row of the result.
fn store(four: vec4<f32>, product: u32, row: u32, column: u32) {
    let at = (product * parameters.own_rows + row) * parameters.columns + column;
    if BY_VECTORS {
        if column < parameters.columns {
            result_vectors[at / 4u] = four;
        }
    } else {
        @unroll(IN_REGISTERS) for (var i = 0u; i < 4u; i++) {
            if column + i < parameters.columns {
                result[at + i] = four[i];
            }
        }
    }
}
