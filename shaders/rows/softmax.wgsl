// softmax and its logarithm, exp(x - largest) / sum(exp(x - largest)) of a row. A row with NaN or infinity, or of -infinity
// alone, is NaN.
import package::lib::exponentials::{Exponentials, exp_of_distance, joined};
import package::lib::math::{INFINITY_BITS, NAN_BITS, is_nan, or_nan, precise_log, replace_bits};

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

// The largest and the sum of a single element: exp(x - x) is 1. `joined` takes two sets of elements.
fn of_element(x: f32) -> Exponentials {
    return Exponentials(x, 1.0);
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
