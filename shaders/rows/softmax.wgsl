// softmax, its logarithm and their gradients: exp(x - largest) / sum(exp(x - largest)) of a row. A row with NaN or infinity, or of -infinity
// alone, is NaN.
import package::lib::exponentials::{Exponentials, exp_of_distance, joined, no_exponentials};
import package::lib::math::{INFINITY_BITS, NAN_BITS, is_nan, or_nan, precise_exp, precise_log, replace_bits};

fn largest(x: f32) -> f32 {
    return x;
}

fn shifted(x: f32, largest: f32) -> f32 {
    return x - largest;
}

fn power(shifted: f32) -> f32 {
    return exp_of_distance(shifted);
}

fn sum(power: f32) -> f32 {
    return power;
}

// Both in one pass.
fn with_element(own: Exponentials, x: f32) -> Exponentials {
    return joined(own, Exponentials(x, 1.0));
}

fn share_of_largest(own: Exponentials) -> f32 {
    return own.largest;
}

fn share_of_sum(own: Exponentials, largest: f32) -> f32 {
    return own.sum * precise_exp(own.largest - largest);
}

// The sum, or NaN where the row has no softmax: without infinities and NaN the largest alone adds 1.
fn normalizer(largest: f32, sum: f32) -> f32 {
    let is_undefined = bitcast<u32>(largest) == INFINITY_BITS || is_nan(sum) || sum < 0.5;
    return replace_bits(sum, NAN_BITS, is_undefined);
}

fn softmax(power: f32, normalizer: f32) -> f32 {
    return or_nan(power / normalizer, normalizer);
}

fn log_normalizer(normalizer: f32) -> f32 {
    return precise_log(normalizer);
}

fn log_softmax(shifted: f32, log_normalizer: f32) -> f32 {
    return or_nan(shifted - log_normalizer, log_normalizer);
}

// The gradients, from those of the results.

fn products(grad: f32, y: f32) -> f32 {
    return grad * y;
}

fn softmax_grad(grad: f32, y: f32, products: f32) -> f32 {
    return y * (grad - products);
}

fn total(grad: f32) -> f32 {
    return grad;
}

fn log_softmax_grad(grad: f32, y: f32, total: f32) -> f32 {
    return grad - precise_exp(y) * total;
}
