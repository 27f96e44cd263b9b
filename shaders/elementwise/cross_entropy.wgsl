// Cross-entropy with a class for each row: which share of a row's weight each class is meant to have, and the gradient.
import package::lib::math::{precise_exp, quiet_nan};

// `first` is the number of the element that has the index 0.
// (1 - smoothing) w_label for the label, and smoothing / classes w_c for every class; 0 in a row to be ignored, and NaN
// in one whose label is no class. `weight` is that of `column`.
fn target_share(label: i32, column: i32, weight: f32, classes: i32, ignored: i32, smoothing: f32) -> f32 {
    let of_label = select(0.0, 1.0 - smoothing, label == column);
    let share = weight * (of_label + smoothing / f32(classes));
    let unless_no_class = select(quiet_nan(), share, label >= 0 && label < classes);
    return select(unless_no_class, 0.0, label == ignored);
}

fn share_of_column(
    index: u32, first: u32, label: i32, weight: f32, classes: i32, ignored: i32, smoothing: f32,
) -> f32 {
    return target_share(label, i32((first + index) % u32(classes)), weight, classes, ignored, smoothing);
}

// The gradient by x: g (shares softmax(x) - share), where `shares` is the sum of the row's shares.
fn cross_entropy_grad(
    g: f32, x: f32, log_sum: f32, shares: f32, index: u32, first: u32, label: i32, weight: f32, classes: i32,
    ignored: i32, smoothing: f32,
) -> f32 {
    return g * (shares * precise_exp(x - log_sum) - share_of_column(index, first, label, weight, classes, ignored, smoothing));
}

// -share log p; 0 where there is no share, even of the logarithm of 0.
fn nll_term(log_prob: f32, share: f32) -> f32 {
    return select(-share * log_prob, 0.0, share == 0.0);
}
