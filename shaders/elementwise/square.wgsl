// The square.
fn square(x: f32) -> f32 {
    return x * x;
}

fn square_grad(g: f32, x: f32) -> f32 {
    return 2.0 * g * x;
}
