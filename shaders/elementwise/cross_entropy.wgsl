// Negative log-likelihood of one class among those of a row: one term for each class, 0 for all but its label.
// A label that is no class makes loss and gradient NaN rather than silently 0.
import package::lib::math::quiet_nan;

fn unless_no_class(value: f32, label: i32, classes: i32) -> f32 {
    return select(quiet_nan(), value, label >= 0 && label < classes);
}

fn nll_term(log_prob: f32, label: i32, column: i32, classes: i32) -> f32 {
    return unless_no_class(select(0.0, -log_prob, label == column), label, classes);
}

fn nll_term_grad(g: f32, label: i32, column: i32, classes: i32) -> f32 {
    return unless_no_class(select(0.0, -g, label == column), label, classes);
}
