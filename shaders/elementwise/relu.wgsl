// Rectified linear unit: NaN stays NaN, and the derivative at 0 is 0, as in torch.
import package::lib::math::is_nan;

fn is_off(x: f32) -> bool {
    return x <= 0.0 && !is_nan(x);
}

fn relu(x: f32) -> f32 {
    return select(x, 0.0, is_off(x));
}

fn relu_grad(g: f32, x: f32) -> f32 {
    return select(g, 0.0, is_off(x));
}
