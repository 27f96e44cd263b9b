// start ratio^(t/T), in steps or not, and bounded by end.
import package::lib::math::{precise_exp, precise_pow};
import package::schedules::parameters::{Parameters, cycle};

fn exponential(count: f32, base: f32, p: Parameters) -> f32 {
    let exponent = select(count / p.steps, cycle(count, p.steps).number, p.stairs != 0.0);
    let value = p.start * precise_pow(p.power, exponent) * precise_exp(exponent * p.rest);
    return base * select(min(value, p.end), max(value, p.end), p.power < 1.0);
}
