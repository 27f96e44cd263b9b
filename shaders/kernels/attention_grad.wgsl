// Gradients of scaled dot-product attention (Dao et al. 2022, arXiv:2205.14135): of queries, keys or values, each in a
// dispatch of its own, for up to 32 `column_tiles` of their columns. The weights P are computed again from the
// logarithms of their sums: dV = Pᵀ dO, and with dS = P (dO Vᵀ - rowsum(dO O)), dQ = scale dS K and dK = scale dSᵀ Q.
import package::lib::attention::{
    TILE, end_of_others, first_other, is_hidden, my_column, my_row, parameters, place_of, product_number, products,
    score, weights, with_weighted,
};
import package::lib::math::precise_exp;

override column_tiles: u32 = 1u;

// For each query the logarithm of its sum of weights, and rowsum(dO O).
@group(0) @binding(5) var<storage, read> of_queries: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read_write> result: array<f32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let product = product_number(workgroup.y);
    let place = place_of(product, workgroup.x);
    let row_in_tile = my_row(lane);
    let column_in_tile = my_column(lane);
    let owns_queries = parameters.owns_queries != 0u;
    let first_query = product * select(parameters.other_rows, parameters.own_rows, owns_queries);
    let passes = select(2u, 1u, parameters.adds_values != 0u);
    var sums: array<vec4<f32>, 4u * column_tiles>;
    let end = end_of_others(place);
    for (var first = first_other(place); first < end; first += TILE) {
        var found: array<f32, 16>; // weights, then their slopes
        for (var pass_ = 0u; pass_ < passes; pass_++) {
            let its_products = products(place, lane, first, pass_ == 1u);
            for (var at = 0u; at < 16u; at++) {
                let i = at / 4u;
                let own_row = place.first_own + row_in_tile + i;
                let other_row = first + column_in_tile + at % 4u;
                let slot = (column_in_tile + at % 4u) * TILE + row_in_tile + i;
                let value = its_products[i][at % 4u];
                let query = select(other_row, own_row, owns_queries);
                if pass_ == 0u {
                    let its_score = score(value, place, own_row, other_row);
                    found[at] = 0.0;
                    if !is_hidden(its_score) {
                        found[at] = precise_exp(its_score - of_queries[first_query + query].x);
                    }
                } else if found[at] != 0.0 {
                    found[at] *= value - of_queries[first_query + query].y;
                }
                weights[slot] = found[at];
            }
        }
        workgroupBarrier();
        for (var tile = 0u; tile < column_tiles; tile++) {
            let before = array<vec4<f32>, 4>(
                sums[4u * tile], sums[4u * tile + 1u], sums[4u * tile + 2u], sums[4u * tile + 3u],
            );
            let after = with_weighted(before, place, lane, first, parameters.first_column + tile * TILE);
            for (var i = 0u; i < 4u; i++) {
                sums[4u * tile + i] = after[i];
            }
        }
    }
    for (var at = 0u; at < 16u * column_tiles; at++) {
        let i = at % 16u / 4u;
        let row = place.first_own + row_in_tile + i;
        let column = parameters.first_column + at / 16u * TILE + column_in_tile + at % 4u;
        if row < parameters.own_rows && column < parameters.columns {
            result[(product * parameters.own_rows + row) * parameters.columns + column] =
                sums[at / 16u * 4u + i][at % 4u] * parameters.result_scale;
        }
    }
}
