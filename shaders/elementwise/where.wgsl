// One value where a condition holds, another where it does not; floats as their bits, so that NaN stays what it is.
fn where_f32(condition: u32, a: f32, b: f32) -> f32 {
    return bitcast<f32>(select(bitcast<u32>(b), bitcast<u32>(a), condition != 0u));
}

fn where_i32(condition: u32, a: i32, b: i32) -> i32 {
    return select(b, a, condition != 0u);
}

fn where_u32(condition: u32, a: u32, b: u32) -> u32 {
    return select(b, a, condition != 0u);
}
