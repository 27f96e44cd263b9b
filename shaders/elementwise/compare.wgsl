// Comparisons. NaN is unequal to everything and neither less nor greater; 0 equals -0. Bools are 0 and 1, and compared
// as unsigned integers.
import package::lib::math::is_nan;
import package::lib::order::order_key;

fn equal_f32(a: f32, b: f32) -> bool {
    return order_key(a) == order_key(b) && !is_nan(a);
}

fn not_equal_f32(a: f32, b: f32) -> bool {
    return order_key(a) != order_key(b) || is_nan(a);
}

fn less_f32(a: f32, b: f32) -> bool {
    return order_key(a) < order_key(b) && !is_nan(a) && !is_nan(b);
}

fn less_equal_f32(a: f32, b: f32) -> bool {
    return order_key(a) <= order_key(b) && !is_nan(a) && !is_nan(b);
}

fn equal_i32(a: i32, b: i32) -> bool {
    return a == b;
}

fn not_equal_i32(a: i32, b: i32) -> bool {
    return a != b;
}

fn less_i32(a: i32, b: i32) -> bool {
    return a < b;
}

fn less_equal_i32(a: i32, b: i32) -> bool {
    return a <= b;
}

fn equal_u32(a: u32, b: u32) -> bool {
    return a == b;
}

fn not_equal_u32(a: u32, b: u32) -> bool {
    return a != b;
}

fn less_u32(a: u32, b: u32) -> bool {
    return a < b;
}

fn less_equal_u32(a: u32, b: u32) -> bool {
    return a <= b;
}
