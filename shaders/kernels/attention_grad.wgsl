// Gradients of scaled dot-product attention (Dao et al. 2022, arXiv:2205.14135): of queries, keys or values, each in a
// dispatch of its own, for up to 32 `column_tiles` of their columns. The weights P are computed again from the
// logarithms of their sums: dV = Pᵀ dO, and with dS = P (dO Vᵀ - rowsum(dO O)), dQ = scale dS K and dK = scale dSᵀ Q.
import package::lib::attention::{
    COLUMN_TILES, INVOCATIONS, IN_REGISTERS, OTHER_TILE, ROWS, column_of, end_of_others, first_other, is_hidden,
    keep_weights, other_row_of, own_row_of, parameters, place_of, product_number, products, scores_of, store,
    with_weighted,
};
import package::lib::math::precise_exp;

// For each query the logarithm of its sum of weights, and rowsum(dO O).
@group(0) @binding(6) var<storage, read> of_queries: array<vec2<f32>>;

// Both numbers for the query of each pair of an owned row with four others: of the row itself, or of each other.
fn known_of(product: u32, own: u32, first_other_row: u32, lane: u32) -> array<vec2<f32>, 4> {
    var known: array<vec2<f32>, 4>;
    if parameters.owns_queries != 0u {
        let of_own = of_queries[product * parameters.own_rows + min(own, parameters.own_rows - 1u)];
        known = array<vec2<f32>, 4>(of_own, of_own, of_own, of_own);
    } else {
        @unroll(IN_REGISTERS) for (var j = 0u; j < 4u; j++) {
            let other = min(first_other_row + other_row_of(lane, j), parameters.other_rows - 1u);
            known[j] = of_queries[product * parameters.other_rows + other];
        }
    }
    return known;
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let product = product_number(workgroup.y);
    let place = place_of(product, workgroup.x);
    var sums: array<vec4<f32>, ROWS * COLUMN_TILES>;
    let end = end_of_others(place);
    for (var first = first_other(place); first < end; first += OTHER_TILE) {
        var of_pairs: array<vec4<f32>, ROWS>; // P, then dS
        @unroll(IN_REGISTERS) for (var of_values = 0u; of_values < 2u; of_values++) {
            if of_values == 0u || parameters.adds_values == 0u {
                var found = products(place, lane, first, of_values != 0u);
                if of_values == 0u {
                    found = scores_of(found, place, lane, first);
                }
                @unroll(IN_REGISTERS) for (var i = 0u; i < ROWS; i++) {
                    var known = known_of(product, place.first_own + own_row_of(lane, i), first, lane);
                    if of_values == 0u {
                        @unroll(IN_REGISTERS) for (var j = 0u; j < 4u; j++) {
                            let weight = precise_exp(found[i][j] - known[j].x);
                            of_pairs[i][j] = select(weight, 0.0, is_hidden(found[i][j]));
                        }
                    } else {
                        let deltas = vec4<f32>(known[0].y, known[1].y, known[2].y, known[3].y);
                        let weights = of_pairs[i];
                        // Where there is no weight, the values may be infinite.
                        of_pairs[i] = select(weights * (found[i] - deltas), weights, weights == vec4<f32>(0.0));
                    }
                }
            }
        }
        keep_weights(of_pairs, lane);
        workgroupBarrier();
        sums = with_weighted(sums, place, lane, first);
    }
    @unroll(IN_REGISTERS) for (var i = 0u; i < ROWS; i++) {
        let row = place.first_own + own_row_of(lane, i);
        if row < parameters.own_rows {
            @unroll(IN_REGISTERS) for (var tile = 0u; tile < COLUMN_TILES; tile++) {
                store(sums[i * COLUMN_TILES + tile] * parameters.result_scale, product, row, column_of(lane, tile));
            }
        }
    }
}
