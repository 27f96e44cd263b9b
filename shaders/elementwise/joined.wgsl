// Along an axis of so many places with `inner` elements each: one tensor up to the place `end`, another from there on. As
// bits, so that NaN stays what it is.
fn before(index: u32, a: f32, b: f32, inner: u32, places: u32, end: u32) -> f32 {
    return bitcast<f32>(select(bitcast<u32>(b), bitcast<u32>(a), index / inner % places < end));
}
