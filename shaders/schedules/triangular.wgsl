// Cyclical rates (Smith 2017, arXiv:1506.01186): from start to end in so many steps, and back until the period is over;
// the height times ratio^t, or ratio^cycle if `by_cycle` is not 0. `rest` is that of `exponential`.
import package::lib::math::{precise_exp, precise_pow};
import package::lib::cycle::cycle;

fn triangular(
    count: f32, base: f32, start: f32, end: f32, steps: f32, period: f32, ratio: f32, rest: f32, by_cycle: f32
) -> f32 {
    let place = cycle(count, period);
    let falling = (period - place.at) / max(period - steps, 1e-30);
    let height = select(falling, place.at / steps, place.at <= steps);
    let exponent = select(count, place.number, by_cycle != 0.0);
    let scale = precise_pow(ratio, exponent) * precise_exp(exponent * rest);
    return base * (start + (end - start) * height * scale);
}
