// Of every `length` elements the first ones, up to `end`, from one tensor, and the others from another. As bits, so that
// NaN stays what it is.
fn before(index: u32, a: f32, b: f32, length: u32, end: u32) -> f32 {
    return bitcast<f32>(select(bitcast<u32>(b), bitcast<u32>(a), index % length < end));
}
