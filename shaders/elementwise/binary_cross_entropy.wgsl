// Binary cross-entropy of probabilities and of logits.
import package::lib::math::{log1p, precise_exp, precise_log};

const LOWEST_LOG: f32 = -100.0;

fn binary_cross_entropy(x: f32, t: f32) -> f32 {
    // NaN passes: `select` takes the second where the condition holds.
    let log_x = select(precise_log(x), LOWEST_LOG, precise_log(x) < LOWEST_LOG);
    let log_rest = select(log1p(-x), LOWEST_LOG, log1p(-x) < LOWEST_LOG);
    return (t - 1.0) * log_rest - t * log_x;
}

// (1 - t) x + (1 + added t) log(1 + exp(-x)), where log(1 + exp(-x)) is max(-x, 0) + log(1 + exp(-|x|)).
fn with_logits(x: f32, t: f32, added: f32) -> f32 {
    let softplus = select(-x, 0.0, x > 0.0) + log1p(precise_exp(-abs(x)));
    return (1.0 - t) * x + (1.0 + added * t) * softplus;
}
