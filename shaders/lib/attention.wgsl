// Tiles of attention and of its gradients (Dao et al. 2022, arXiv:2205.14135), all f32: a workgroup of 8 x 8
// invocations owns 32 rows of one matrix and meets the rows of another, 32 at a time. The scores are never stored.
//
// The forward pass and the gradient of the queries own queries and meet keys; the gradients of keys and of values own
// keys and meet queries. Values go along with the rows: those of the keys, and for queries the gradient of the result.

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
@group(0) @binding(1) var<storage, read> other: array<f32>;
@group(0) @binding(2) var<storage, read> own_values: array<f32>;
@group(0) @binding(3) var<storage, read> other_values: array<f32>;
@group(0) @binding(4) var<storage, read> mask: array<u32>;
// 5 and 6 are the kernel's own.
@group(0) @binding(7) var<uniform> parameters: AttentionParameters;

const TILE: u32 = 32u;
const DEPTH: u32 = 8u;
const LOWEST: f32 = -3.4028235e38;
const LOWEST_BITS: u32 = 0xff7fffffu;
const MINUS_INFINITY_BITS: u32 = 0xff800000u;

var<workgroup> own_tile: array<f32, 256>;   // DEPTH x TILE, or a number for each invocation
var<workgroup> other_tile: array<f32, 256>; // DEPTH x TILE
var<workgroup> weights: array<f32, 1024>;   // TILE of the others x TILE of the owned

// The product of a workgroup by both axes of the batch, and its first row. All of its invocations have the same.
struct Place { outer: u32, within: u32, first_own: u32 }

fn product_number(workgroup_y: u32) -> u32 {
    return parameters.first_product + workgroup_y;
}

fn place_of(product: u32, tile: u32) -> Place {
    return Place(product / parameters.batch_inner, product % parameters.batch_inner, tile * TILE);
}

// An invocation has four neighbouring owned rows, and four neighbouring rows of the others or columns.
fn my_row(lane: u32) -> u32 {
    return lane / 8u * 4u;
}

fn my_column(lane: u32) -> u32 {
    return lane % 8u * 4u;
}

// Which tiles of the others there are to meet: a query meets no later key.
fn first_other(place: Place) -> u32 {
    return select(0u, place.first_own, parameters.is_causal != 0u && parameters.owns_queries == 0u);
}

fn end_of_others(place: Place) -> u32 {
    let is_cut = parameters.is_causal != 0u && parameters.owns_queries != 0u;
    return select(parameters.other_rows, min(parameters.other_rows, place.first_own + TILE), is_cut);
}

fn is_pair(own_row: u32, other_row: u32) -> bool {
    let query = select(other_row, own_row, parameters.owns_queries != 0u);
    let key = select(own_row, other_row, parameters.owns_queries != 0u);
    let is_inside = own_row < parameters.own_rows && other_row < parameters.other_rows;
    return is_inside && (parameters.is_causal == 0u || key <= query);
}

// The logarithm of a weight, but for what all weights of a query share; LOWEST or less where there is none.
fn score(product: f32, place: Place, own_row: u32, other_row: u32) -> f32 {
    if !is_pair(own_row, other_row) {
        return LOWEST;
    }
    let scaled = product * parameters.scale;
    if parameters.mask_kind == 0u {
        return scaled;
    }
    let at = parameters.mask_start + place.outer * parameters.mask_outer + place.within * parameters.mask_batch
        + own_row * parameters.mask_own + other_row * parameters.mask_other;
    let word = mask[at];
    if parameters.mask_kind == 1u {
        return select(LOWEST, scaled, word != 0u);
    }
    return select(scaled + bitcast<f32>(word), LOWEST, word == LOWEST_BITS || word == MINUS_INFINITY_BITS);
}

fn is_hidden(score: f32) -> bool {
    let bits = bitcast<u32>(score);
    return bits == LOWEST_BITS || bits == MINUS_INFINITY_BITS;
}

// Products of four owned rows with four of the others, or of their values.
fn products(place: Place, lane: u32, first_other_row: u32, of_values: bool) -> array<vec4<f32>, 4> {
    let p = parameters;
    let own_start = select(
        p.own_start + place.outer * p.own_outer + place.within * p.own_batch,
        p.own_values_start + place.outer * p.own_values_outer + place.within * p.own_values_batch, of_values,
    );
    let other_start = select(
        p.other_start + place.outer * p.other_outer + place.within * p.other_batch,
        p.other_values_start + place.outer * p.other_values_outer + place.within * p.other_values_batch, of_values,
    );
    let own_row_stride = select(p.own_row, p.own_values_row, of_values);
    let own_column_stride = select(p.own_column, p.own_values_column, of_values);
    let other_row_stride = select(p.other_row, p.other_values_row, of_values);
    let other_column_stride = select(p.other_column, p.other_values_column, of_values);
    let columns = select(p.depth, p.value_depth, of_values);
    var sum0 = vec4<f32>(0.0);
    var sum1 = vec4<f32>(0.0);
    var sum2 = vec4<f32>(0.0);
    var sum3 = vec4<f32>(0.0);
    for (var start = 0u; start < columns; start += DEPTH) {
        for (var turn = 0u; turn < 4u; turn++) {
            let at = lane + turn * 64u;
            let column = start + at % DEPTH;
            let own_row = place.first_own + at / DEPTH;
            let other_row = first_other_row + at / DEPTH;
            var own_value = 0.0;
            var other_value = 0.0;
            if column < columns && own_row < p.own_rows {
                let own_at = own_start + own_row * own_row_stride + column * own_column_stride;
                if of_values {
                    own_value = own_values[own_at];
                } else {
                    own_value = own[own_at];
                }
            }
            if column < columns && other_row < p.other_rows {
                let other_at = other_start + other_row * other_row_stride + column * other_column_stride;
                if of_values {
                    other_value = other_values[other_at];
                } else {
                    other_value = other[other_at];
                }
            }
            own_tile[at % DEPTH * TILE + at / DEPTH] = own_value;
            other_tile[at % DEPTH * TILE + at / DEPTH] = other_value;
        }
        workgroupBarrier();
        for (var depth = 0u; depth < DEPTH; depth++) {
            let own_at = depth * TILE + my_row(lane);
            let other_at = depth * TILE + my_column(lane);
            let row = vec4<f32>(
                other_tile[other_at], other_tile[other_at + 1u], other_tile[other_at + 2u], other_tile[other_at + 3u],
            );
            sum0 += own_tile[own_at] * row;
            sum1 += own_tile[own_at + 1u] * row;
            sum2 += own_tile[own_at + 2u] * row;
            sum3 += own_tile[own_at + 3u] * row;
        }
        workgroupBarrier();
    }
    return array<vec4<f32>, 4>(sum0, sum1, sum2, sum3);
}

// The sums so far, of four owned rows in four columns from `first_column` + my_column(lane) on, and the others (or
// their values) times `weights`.
fn with_weighted(sums: array<vec4<f32>, 4>, place: Place, lane: u32, first_other_row: u32, first_column: u32)
    -> array<vec4<f32>, 4>
{
    let p = parameters;
    let adds_values = p.adds_values != 0u;
    let other_start = select(
        p.other_start + place.outer * p.other_outer + place.within * p.other_batch,
        p.other_values_start + place.outer * p.other_values_outer + place.within * p.other_values_batch, adds_values,
    );
    let row_stride = select(p.other_row, p.other_values_row, adds_values);
    let column_stride = select(p.other_column, p.other_values_column, adds_values);
    var sum0 = sums[0];
    var sum1 = sums[1];
    var sum2 = sums[2];
    var sum3 = sums[3];
    for (var start = 0u; start < TILE; start += DEPTH) {
        for (var turn = 0u; turn < 4u; turn++) {
            let at = lane + turn * 64u;
            let row = first_other_row + start + at / TILE;
            let column = first_column + at % TILE;
            var value = 0.0;
            if row < p.other_rows && column < p.columns {
                let other_at = other_start + row * row_stride + column * column_stride;
                if adds_values {
                    value = other_values[other_at];
                } else {
                    value = other[other_at];
                }
            }
            other_tile[at] = value;
        }
        workgroupBarrier();
        for (var depth = 0u; depth < DEPTH; depth++) {
            let weight_at = (start + depth) * TILE + my_row(lane);
            let other_at = depth * TILE + my_column(lane);
            let row = vec4<f32>(
                other_tile[other_at], other_tile[other_at + 1u], other_tile[other_at + 2u], other_tile[other_at + 3u],
            );
            sum0 += weights[weight_at] * row;
            sum1 += weights[weight_at + 1u] * row;
            sum2 += weights[weight_at + 2u] * row;
            sum3 += weights[weight_at + 3u] * row;
        }
        workgroupBarrier();
    }
    return array<vec4<f32>, 4>(sum0, sum1, sum2, sum3);
}
