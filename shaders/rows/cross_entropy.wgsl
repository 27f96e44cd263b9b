// Cross-entropy of a row with a class: w_t (log(sum(exp(x))) - x_t), and with `smoothing` s, (1 - s) times that and s / classes
// times the sum of w_c (log(sum(exp(x))) - x_c) over all classes (Szegedy et al. 2016, arXiv:1512.00567). A row whose label is
// `ignored` has the loss and the weight 0; one whose label is no class is NaN. `rows/softmax.wgsl` finds the sum.
import package::lib::exponentials::no_exponentials;
import package::lib::math::{precise_log, quiet_nan};
import package::rows::softmax::{largest, power, share_of_largest, share_of_sum, shifted, sum, with_element};

fn log_sum(sum: f32) -> f32 {
    return precise_log(sum);
}

fn is_class(label: i32, count: u32) -> bool {
    return label >= 0 && label < i32(count);
}

fn is_ignored(label: i32, ignored: i32) -> bool {
    return label == ignored;
}

// Of its label; 0 where that is no class.
fn label_column(label: i32, is_class: bool) -> u32 {
    return select(0u, u32(label), is_class);
}

// Of classes without weights.
fn unit_weight() -> f32 {
    return 1.0;
}

fn weight(weight_of_label: f32, is_class: bool, is_ignored: bool) -> f32 {
    return select(select(quiet_nan(), weight_of_label, is_class), 0.0, is_ignored);
}

fn loss(weight: f32, largest: f32, log_sum: f32, logit: f32, is_ignored: bool) -> f32 {
    return select(weight * (largest - logit + log_sum), 0.0, is_ignored);
}

fn log_of_all(largest: f32, log_sum: f32) -> f32 {
    return largest + log_sum;
}

// With smoothing.

fn sum_of_weights(class_weight: f32) -> f32 {
    return class_weight;
}

fn size_of_all(size: f32) -> f32 {
    return size;
}

fn weighted_distances(x: f32, largest: f32, class_weight: f32) -> f32 {
    return class_weight * (largest - x);
}

fn distances(x: f32, largest: f32) -> f32 {
    return largest - x;
}

fn smoothed_loss(
    loss: f32, distances: f32, weights: f32, log_sum: f32, smoothing: f32, size: f32, is_ignored: bool,
) -> f32 {
    let of_all = smoothing / size * (distances + weights * log_sum);
    return select((1.0 - smoothing) * loss + of_all, 0.0, is_ignored);
}

// What the gradient of a row multiplies softmax by.
fn sum_of_shares(weight: f32, weights: f32, smoothing: f32, size: f32, is_ignored: bool) -> f32 {
    return select((1.0 - smoothing) * weight + smoothing / size * weights, 0.0, is_ignored);
}
