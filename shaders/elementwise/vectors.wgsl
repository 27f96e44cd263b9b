// Steps of methods over vectors, whose scalars stay on the device.
import package::lib::math::is_finite;

// y + (a - b) / c x
fn add_scaled(y: f32, x: f32, a: f32, b: f32, c: f32) -> f32 {
    return y + (a - b) / c * x;
}

// a / b x
fn scale(x: f32, a: f32, b: f32) -> f32 {
    return a / b * x;
}

fn magnitude(x: f32) -> f32 {
    return abs(x);
}

fn largest_magnitude(a: f32, b: f32, c: f32, d: f32) -> f32 {
    return max(max(abs(a), abs(b)), max(abs(c), abs(d)));
}

fn count_nonfinite(x: f32) -> f32 {
    return select(1.0, 0.0, is_finite(x));
}
