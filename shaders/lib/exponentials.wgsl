// The largest of values and the sum of exp(value - largest), in one pass (Milakov and Gimelshein 2018,
// arXiv:1805.02867): where a value is larger than those before, their sum is scaled. Each value takes one exponential.
import package::lib::math::precise_exp;

const LOWEST: f32 = -3.4028235e38;

struct Exponentials { largest: f32, sum: f32 }

fn no_exponentials() -> Exponentials {
    return Exponentials(LOWEST, 0.0);
}

fn with_exponential(before: Exponentials, value: f32) -> Exponentials {
    let distance = value - before.largest;
    let power = precise_exp(-abs(distance));
    if distance > 0.0 {
        return Exponentials(value, before.sum * power + 1.0);
    }
    return Exponentials(before.largest, before.sum + power);
}
