// Cosine annealing (Loshchilov & Hutter 2017, arXiv:1608.03983), up again in the second half of a period:
// start ((1 + cos(pi t/T)) / 2)^power + end (1 - ...). As squared sines, which are accurate where the cosine cancels.
import package::lib::math::{expm1, log1p, precise_pow, precise_sin};
import package::schedules::parameters::{Parameters, cycle};

const HALF_PI: f32 = 1.5707963267948966;

fn cosine(count: f32, base: f32, p: Parameters) -> f32 {
    let steps_left = abs(p.until - cycle(count, p.period).at);
    let fall = precise_sin(HALF_PI * (steps_left / p.steps));
    let rise = precise_sin(HALF_PI * ((p.steps - steps_left) / p.steps));
    let left = precise_pow(fall * fall, p.power);
    let gone = -expm1(p.power * log1p(-min(rise * rise, 1.0)));
    return p.offset + (base - p.offset) * (p.start * left + p.end * gone);
}
