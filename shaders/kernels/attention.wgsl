// Scaled dot-product attention, softmax(scale Q Kᵀ + mask) V, with the softmax taken on the way (Dao et al. 2022,
// arXiv:2205.14135), for up to 32 `column_tiles` columns of V. Keeps the logarithm of each query's sum of weights.
import package::lib::attention::{
    COLUMN_TILES, INVOCATIONS, IN_REGISTERS, LANES, LOWEST, OTHER_TILE, ROWS, ROW_VECTORS, column_of, end_of_others,
    is_hidden, keep_weights, own_row_of, parameters, place_of, product_number, products, scores_of, staged, store,
    with_weighted,
};
import package::lib::math::{precise_exp, precise_log};

@group(0) @binding(6) var<storage, read_write> log_sums: array<f32>;

const LARGEST: f32 = 3.4028235e38;

// The largest or the sum, for each of four owned rows, of what the invocations with these rows have staged.
fn reduced(lane: u32, row_vector: u32, takes_largest: bool) -> vec4<f32> {
    let first = row_vector * INVOCATIONS + lane / LANES * LANES;
    var of_rows = staged[first];
    @unroll(IN_REGISTERS) for (var other = 1u; other < LANES; other++) {
        let others = staged[first + other];
        of_rows = select(of_rows + others, max(of_rows, others), takes_largest);
    }
    return of_rows;
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let product = product_number(workgroup.y);
    let place = place_of(product, workgroup.x);
    var sums: array<vec4<f32>, ROWS * COLUMN_TILES>;
    var maxima: array<vec4<f32>, ROW_VECTORS>; // of four owned rows each, like the totals
    var totals: array<vec4<f32>, ROW_VECTORS>; // over the others of this invocation
    @unroll(IN_REGISTERS) for (var i = 0u; i < ROW_VECTORS; i++) {
        maxima[i] = vec4<f32>(LOWEST);
    }
    let end = end_of_others(place);
    for (var first = 0u; first < end; first += OTHER_TILE) {
        var scores = scores_of(products(place, lane, first, false), place, lane, first);
        @unroll(IN_REGISTERS) for (var i = 0u; i < ROW_VECTORS; i++) {
            var largest = maxima[i];
            @unroll for (var row = 0u; row < 4u; row++) {
                let of_row = max(scores[4u * i + row].xy, scores[4u * i + row].zw);
                largest[row] = max(largest[row], max(of_row.x, of_row.y));
            }
            staged[i * INVOCATIONS + lane] = largest;
        }
        workgroupBarrier();
        @unroll(IN_REGISTERS) for (var i = 0u; i < ROW_VECTORS; i++) {
            let largest = reduced(lane, i, true);
            @unroll(IN_REGISTERS) for (var row = 0u; row < 4u; row++) {
                let kept = precise_exp(maxima[i][row] - largest[row]);
                var of_row = scores[4u * i + row];
                var total = totals[i][row] * kept;
                @unroll(IN_REGISTERS) for (var j = 0u; j < 4u; j++) {
                    of_row[j] = select(precise_exp(of_row[j] - largest[row]), 0.0, is_hidden(of_row[j]));
                    total += of_row[j];
                }
                scores[4u * i + row] = of_row;
                totals[i][row] = total;
                @unroll(IN_REGISTERS) for (var tile = 0u; tile < COLUMN_TILES; tile++) {
                    sums[(4u * i + row) * COLUMN_TILES + tile] *= kept;
                }
            }
            maxima[i] = largest;
        }
        keep_weights(scores, lane);
        workgroupBarrier();
        sums = with_weighted(sums, place, lane, first);
    }

    @unroll(IN_REGISTERS) for (var i = 0u; i < ROW_VECTORS; i++) {
        staged[i * INVOCATIONS + lane] = totals[i];
    }
    workgroupBarrier();
    @unroll(IN_REGISTERS) for (var i = 0u; i < ROW_VECTORS; i++) {
        let total = reduced(lane, i, false);
        @unroll(IN_REGISTERS) for (var row = 0u; row < 4u; row++) {
            let number = 4u * i + row;
            let own = place.first_own + own_row_of(lane, number);
            let is_empty = total[row] == 0.0; // all is hidden from this query: as in torch, it gets zeros
            let share = 1.0 / total[row];
            if own < parameters.own_rows {
                if lane % LANES == 0u {
                    log_sums[product * parameters.own_rows + own] =
                        select(maxima[i][row] + precise_log(total[row]), LARGEST, is_empty);
                }
                @unroll(IN_REGISTERS) for (var tile = 0u; tile < COLUMN_TILES; tile++) {
                    let values = sums[number * COLUMN_TILES + tile] * share;
                    store(select(values, vec4<f32>(0.0), is_empty), product, own, column_of(lane, tile));
                }
            }
        }
    }
}
