// The logistic function 1 / (1 + exp(-x)), by exp(-|x|), which does not overflow.
import package::lib::math::precise_exp;

fn sigmoid(x: f32) -> f32 {
    let e = precise_exp(-abs(x));
    return select(1.0, e, x < 0.0) / (1.0 + e);
}

fn sigmoid_grad(g: f32, x: f32) -> f32 {
    let e = precise_exp(-abs(x));
    return g * (e / ((1.0 + e) * (1.0 + e)));
}
