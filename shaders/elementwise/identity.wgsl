// The value itself: fills and strided copies, one function for each element type.
fn identity_f32(x: f32) -> f32 {
    return x;
}

fn identity_i32(x: i32) -> i32 {
    return x;
}

fn identity_u32(x: u32) -> u32 {
    return x;
}
