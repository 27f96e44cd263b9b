// The hyperbolic tangent. Its derivative 1 - tanh² is 4 e / (1 + e)² with e = exp(-2|x|), which keeps its digits where
// the tangent is near 1.
import package::lib::math::{precise_exp, precise_tanh};

fn tanh_(x: f32) -> f32 {
    return precise_tanh(x);
}

fn tanh_grad(g: f32, x: f32) -> f32 {
    let e = precise_exp(-2.0 * abs(x));
    return g * (4.0 * e / ((1.0 + e) * (1.0 + e)));
}
