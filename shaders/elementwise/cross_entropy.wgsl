// Negative log-likelihood of one class among those of a row: one term for each class, 0 for all but its label.
// A label that is no class makes the loss NaN rather than silently 0.
import package::lib::math::quiet_nan;

fn nll_term(log_prob: f32, label: i32, column: i32, classes: i32) -> f32 {
    let is_class = label >= 0 && label < classes;
    return select(quiet_nan(), select(0.0, -log_prob, label == column), is_class);
}

fn nll_term_grad(g: f32, label: i32, column: i32) -> f32 {
    return select(0.0, -g, label == column);
}
