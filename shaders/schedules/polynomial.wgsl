// From start to end: start (1 - t/T)^power + end (1 - (1 - t/T)^power), constant from T on; T is `steps`.
// `until` is the count at the end: not T where the curve begins between two counts.
import package::lib::math::{expm1, log1p, precise_pow};

fn polynomial(count: f32, base: f32, start: f32, end: f32, steps: f32, until: f32, power: f32) -> f32 {
    let done = clamp(count - (until - steps), 0.0, steps);
    let left = precise_pow(clamp(until - count, 0.0, steps) / steps, power);
    let gone = -expm1(power * log1p(-(done / steps)));
    return base * (start * left + end * gone);
}
