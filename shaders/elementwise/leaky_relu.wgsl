// x, or a multiple of it below 0 (Maas et al. 2013); the derivative at 0 is that of the negative side, as in torch.
fn leaky_relu(x: f32, negative_slope: f32) -> f32 {
    return select(negative_slope * x, x, x > 0.0);
}

fn leaky_relu_grad(g: f32, x: f32, negative_slope: f32) -> f32 {
    return select(negative_slope * g, g, x > 0.0);
}
