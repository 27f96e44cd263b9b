// The square root, as IEEE has it: that of a negative number is NaN, and 0, -0 and infinity stay.
import package::lib::math::{INFINITY_BITS, MAGNITUDE_BITS, NAN_BITS, replace_bits};

fn sqrt_(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let stays = (bits & MAGNITUDE_BITS) == 0u || bits == INFINITY_BITS;
    let root = sqrt(select(x, 1.0, stays || bits > INFINITY_BITS));
    return replace_bits(replace_bits(root, bits, stays), NAN_BITS, bits > INFINITY_BITS && !stays);
}

// By the root, since its derivative is 1 / (2 root).
fn sqrt_grad(g: f32, root: f32) -> f32 {
    return 0.5 * g / root;
}

// The same, but 0 where the root is.
fn sqrt_grad_or_zero(g: f32, root: f32) -> f32 {
    let is_zero = root == 0.0;
    return select(0.5 * g / select(root, 1.0, is_zero), 0.0, is_zero);
}
