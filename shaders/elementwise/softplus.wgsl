// log(1 + exp(beta x)) / beta, and x itself where beta x is above a threshold (Dugas et al. 2001).
import package::lib::math::{is_nan, log1p, precise_exp};

fn softplus(x: f32, beta: f32, threshold: f32) -> f32 {
    let scaled = beta * x;
    let positive = select(max(scaled, 0.0), scaled, is_nan(x));
    return select((positive + log1p(precise_exp(-abs(scaled)))) / beta, x, scaled > threshold && !is_nan(x));
}

fn softplus_grad(g: f32, x: f32, beta: f32, threshold: f32) -> f32 {
    let scaled = beta * x;
    let e = precise_exp(-abs(scaled));
    return select(g * (select(1.0, e, scaled < 0.0) / (1.0 + e)), g, scaled > threshold && !is_nan(x));
}
