// A value brought between two bounds: min(max(x, low), high); NaN stays NaN.
import package::lib::math::is_nan;
import package::lib::order::order_key;

fn clip(x: f32, low: f32, high: f32) -> f32 {
    let raised = select(x, low, order_key(x) < order_key(low) && !is_nan(x));
    return select(raised, high, order_key(raised) > order_key(high) && !is_nan(raised));
}

// The gradient passes where x was within the bounds, or at one of them.
fn clip_grad(g: f32, x: f32, low: f32, high: f32) -> f32 {
    return select(0.0, g, order_key(x) >= order_key(low) && order_key(x) <= order_key(high) && !is_nan(x));
}
