// One over a value; its derivative by the result.
fn reciprocal(x: f32) -> f32 {
    return 1.0 / x;
}

fn reciprocal_grad(g: f32, value: f32) -> f32 {
    return -g * value * value;
}
