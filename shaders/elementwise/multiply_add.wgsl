// Four chains of 64 multiplications and additions that do not wait for each other: 512 operations for each element that
// is stored, so that a device is measured by its arithmetic and not by its memory.
fn multiply_add_chains(index: u32, a: f32, b: f32) -> f32 {
    var p = f32(index);
    var q = p + 0.25;
    var r = p + 0.5;
    var s = p + 0.75;
    for (var i = 0u; i < 64u; i++) {
        p = p * a + b;
        q = q * a + b;
        r = r * a + b;
        s = s * a + b;
    }
    return p + q + r + s;
}
