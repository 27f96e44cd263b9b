// From one element type to another. Floats are cut off towards zero; those out of range become the nearest integer that
// there is, and NaN becomes 0. Integers of other sign wrap.
import package::lib::math::{clamp_without_nan, is_nan};

fn f32_to_i32(x: f32) -> i32 {
    // The largest float below 2^31.
    return select(i32(clamp_without_nan(x, -2147483648.0, 2147483520.0)), 2147483647, x >= 2147483648.0 && !is_nan(x));
}

fn f32_to_u32(x: f32) -> u32 {
    return select(u32(clamp_without_nan(x, 0.0, 4294967040.0)), 4294967295u, x >= 4294967296.0 && !is_nan(x));
}

// NaN counts as true.
fn f32_to_bool(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) != 0u;
}

fn i32_to_f32(x: i32) -> f32 {
    return f32(x);
}

fn i32_to_u32(x: i32) -> u32 {
    return bitcast<u32>(x);
}

fn i32_to_bool(x: i32) -> bool {
    return x != 0;
}

fn u32_to_f32(x: u32) -> f32 {
    return f32(x);
}

fn u32_to_i32(x: u32) -> i32 {
    return bitcast<i32>(x);
}

fn u32_to_bool(x: u32) -> bool {
    return x != 0u;
}
