// The larger and the smaller of two values; NaN if one of them is. A gradient goes to the one that was taken, half of it
// to each where they are equal, and to both where one is NaN, as in torch.
import package::lib::math::{NAN_BITS, is_nan, replace_bits};
import package::lib::order::order_key;

fn maximum(a: f32, b: f32) -> f32 {
    return replace_bits(select(a, b, order_key(b) > order_key(a)), NAN_BITS, is_nan(a) || is_nan(b));
}

fn minimum(a: f32, b: f32) -> f32 {
    return replace_bits(select(a, b, order_key(b) < order_key(a)), NAN_BITS, is_nan(a) || is_nan(b));
}

// What `taken` gets of the gradient: all of it where it comes after `other`.
fn maximum_grad(g: f32, taken: f32, other: f32) -> f32 {
    let unordered = is_nan(taken) || is_nan(other);
    let share = select(select(0.0, 1.0, order_key(taken) > order_key(other)), 0.5, order_key(taken) == order_key(other));
    return select(select(0.0, share * g, share > 0.0), g, unordered);
}

fn minimum_grad(g: f32, taken: f32, other: f32) -> f32 {
    return maximum_grad(g, -taken, -other);
}
