// The value with its sign changed.
fn negate(x: f32) -> f32 {
    return -x;
}
