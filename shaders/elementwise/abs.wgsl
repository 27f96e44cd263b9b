// The magnitude; its derivative is the sign, and 0 at 0.
import package::lib::math::is_nan;

fn abs_(x: f32) -> f32 {
    return abs(x);
}

fn abs_grad(g: f32, x: f32) -> f32 {
    return select(select(-g, g, x > 0.0), 0.0, x == 0.0 || is_nan(x));
}
