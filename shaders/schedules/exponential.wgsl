// start ratio^(t/T), in stairs of T steps if `stairs` is not 0, and bounded by end; T is `steps`.
// `rest` is log(exact ratio / ratio), for what the ratio has beyond f32.
import package::lib::math::{precise_exp, precise_pow};
import package::lib::cycle::cycle;

fn exponential(
    count: f32, base: f32, start: f32, end: f32, steps: f32, ratio: f32, rest: f32, stairs: f32
) -> f32 {
    let exponent = select(count / steps, cycle(count, steps).number, stairs != 0.0);
    let value = start * precise_pow(ratio, exponent) * precise_exp(exponent * rest);
    return base * select(min(value, end), max(value, end), ratio < 1.0);
}
