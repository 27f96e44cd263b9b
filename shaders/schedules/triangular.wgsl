// Cyclical rates (Smith 2017, arXiv:1506.01186): from start to end and back, the height times ratio^t, or ratio^cycle.
import package::lib::math::{precise_exp, precise_pow};
import package::schedules::parameters::{Parameters, cycle};

fn triangular(count: f32, base: f32, p: Parameters) -> f32 {
    let place = cycle(count, p.period);
    let falling = (p.period - place.at) / max(p.period - p.steps, 1e-30);
    let height = select(falling, place.at / p.steps, place.at <= p.steps);
    let exponent = select(count, place.number, p.stairs != 0.0);
    let scale = precise_pow(p.power, exponent) * precise_exp(exponent * p.rest);
    return base * (p.start + (p.end - p.start) * height * scale);
}
