// Scaled dot-product attention, softmax(scale Q Kᵀ + mask) V, with the softmax taken on the way (Dao et al. 2022,
// arXiv:2205.14135), for up to 32 `column_tiles` columns of V. Keeps the logarithm of each query's sum of weights.
import package::lib::attention::{
    LOWEST, TILE, end_of_others, is_hidden, my_column, my_row, own_tile, parameters, place_of, product_number, products,
    score, weights, with_weighted,
};
import package::lib::math::{precise_exp, precise_log};

override column_tiles: u32 = 1u;

@group(0) @binding(5) var<storage, read_write> log_sums: array<f32>;
@group(0) @binding(6) var<storage, read_write> result: array<f32>;

const LARGEST: f32 = 3.4028235e38;

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let product = product_number(workgroup.y);
    let place = place_of(product, workgroup.x);
    let row_in_tile = my_row(lane);
    let column_in_tile = my_column(lane);
    var sums: array<vec4<f32>, 4u * column_tiles>;
    var maxima = vec4<f32>(LOWEST);
    var totals = vec4<f32>(0.0); // of the columns of this invocation
    let end = end_of_others(place);
    for (var first = 0u; first < end; first += TILE) {
        var scores = products(place, lane, first, false);
        for (var i = 0u; i < 4u; i++) {
            var maximum = LOWEST;
            for (var j = 0u; j < 4u; j++) {
                let one = score(scores[i][j], place, place.first_own + row_in_tile + i, first + column_in_tile + j);
                scores[i][j] = one;
                maximum = max(maximum, one);
            }
            own_tile[(row_in_tile + i) * 8u + lane % 8u] = maximum;
        }
        workgroupBarrier();
        for (var i = 0u; i < 4u; i++) {
            var maximum = maxima[i];
            for (var team = 0u; team < 8u; team++) {
                maximum = max(maximum, own_tile[(row_in_tile + i) * 8u + team]);
            }
            let kept = precise_exp(maxima[i] - maximum);
            maxima[i] = maximum;
            var total = totals[i] * kept;
            for (var j = 0u; j < 4u; j++) {
                let weight = select(precise_exp(scores[i][j] - maximum), 0.0, is_hidden(scores[i][j]));
                weights[(column_in_tile + j) * TILE + row_in_tile + i] = weight;
                total += weight;
            }
            totals[i] = total;
            for (var tile = 0u; tile < column_tiles; tile++) {
                sums[4u * tile + i] *= kept;
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

    for (var i = 0u; i < 4u; i++) {
        own_tile[(row_in_tile + i) * 8u + lane % 8u] = totals[i];
    }
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
        let row = place.first_own + row_in_tile + i;
        var total = 0.0;
        for (var team = 0u; team < 8u; team++) {
            total += own_tile[(row_in_tile + i) * 8u + team];
        }
        let is_empty = total == 0.0; // all is hidden from this query: as in torch, it gets zeros
        if row < parameters.own_rows {
            let row_at = product * parameters.own_rows + row;
            if lane % 8u == 0u {
                log_sums[row_at] = select(maxima[i] + precise_log(total), LARGEST, is_empty);
            }
            for (var at = 0u; at < 4u * column_tiles; at++) {
                let column = parameters.first_column + at / 4u * TILE + column_in_tile + at % 4u;
                if column < parameters.columns {
                    result[row_at * parameters.columns + column] =
                        select(sums[at / 4u * 4u + i][at % 4u] / total, 0.0, is_empty);
                }
            }
        }
    }
}
