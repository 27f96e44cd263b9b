// The sine.
import package::lib::math::{precise_cos, precise_sin};

fn sin_(x: f32) -> f32 {
    return precise_sin(x);
}

fn sin_grad(g: f32, x: f32) -> f32 {
    return g * precise_cos(x);
}
