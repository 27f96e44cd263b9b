// The cosine.
import package::lib::math::{precise_cos, precise_sin};

fn cos_(x: f32) -> f32 {
    return precise_cos(x);
}

fn cos_grad(g: f32, x: f32) -> f32 {
    return -g * precise_sin(x);
}
