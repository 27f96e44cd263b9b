// From start to end: start (1 - t/T)^power + end (1 - (1 - t/T)^power), constant from T on.
import package::lib::math::{expm1, log1p, precise_pow};
import package::schedules::parameters::Parameters;

fn polynomial(count: f32, base: f32, p: Parameters) -> f32 {
    let done = clamp(count - (p.until - p.steps), 0.0, p.steps);
    let left = precise_pow(clamp(p.until - count, 0.0, p.steps) / p.steps, p.power);
    let gone = -expm1(p.power * log1p(-(done / p.steps)));
    return base * select(p.start * left + p.end * gone, p.start, p.start == p.end);
}
