// Cosine annealing (Loshchilov & Hutter 2017, arXiv:1608.03983), up again in the second half of a period:
// start ((1 + cos(pi t/T)) / 2)^power + end (1 - ...). As squared sines, which are accurate where the cosine cancels.
// `until` is the count at the end: not T, which is `steps`, where the curve begins between two counts.
import package::lib::math::{expm1, log1p, precise_pow, precise_sin};
import package::lib::cycle::cycle;

const HALF_PI: f32 = 1.5707963267948966;

fn cosine(
    count: f32, base: f32, start: f32, end: f32, steps: f32, until: f32, power: f32, offset: f32, period: f32
) -> f32 {
    let steps_left = abs(until - cycle(count, period).at);
    let fall = precise_sin(HALF_PI * (steps_left / steps));
    let rise = precise_sin(HALF_PI * ((steps - steps_left) / steps));
    let left = precise_pow(fall * fall, power);
    let gone = -expm1(power * log1p(-min(rise * rise, 1.0)));
    return offset + (base - offset) * (start * left + end * gone);
}
