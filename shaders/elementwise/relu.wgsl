// Rectified linear unit. Its derivative at 0 is 0, as in torch.
fn relu(x: f32) -> f32 {
    return select(0.0, x, x > 0.0);
}

fn relu_grad(g: f32, x: f32) -> f32 {
    return select(0.0, g, x > 0.0);
}
