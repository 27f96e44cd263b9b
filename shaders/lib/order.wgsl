// The order of floats as that of integers: no compiler can take it for one without NaN, or flush what is subnormal.

// 0 and -0 are equal. A NaN lies beyond the infinity of its sign.
fn order_key(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    let magnitude = bits & 0x7fffffff;
    return select(magnitude, -magnitude, bits < 0);
}
