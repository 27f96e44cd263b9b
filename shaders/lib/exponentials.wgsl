// The largest of values and the sum of exp(value - largest), in one pass (Milakov and Gimelshein 2018,
// arXiv:1805.02867): where a value is larger than those before, their sum is scaled. Each value takes one exponential.
import package::lib::math::{MINUS_INFINITY_BITS, precise_exp};

const LOWEST: f32 = -3.4028235e38;
const VANISHING_BITS: u32 = 0xc2d00001u; // of the first float below -104, whose exponential is 0

struct Exponentials { largest: f32, sum: f32 }

fn no_exponentials() -> Exponentials {
    return Exponentials(LOWEST, 0.0);
}

// e^x, where many x may be so far below 0 that it is 0, as those of a mask: a result that underflows takes a processor a
// hundred cycles, so e^0 is computed there.
fn exp_of_distance(x: f32) -> f32 {
    let vanishes = bitcast<u32>(x) - VANISHING_BITS <= MINUS_INFINITY_BITS - VANISHING_BITS; // false for NaN
    return select(precise_exp(select(x, 0.0, vanishes)), 0.0, vanishes);
}

// Those of two sets of values. Of one value they are `Exponentials(value, 1.0)`.
fn joined(a: Exponentials, b: Exponentials) -> Exponentials {
    let distance = b.largest - a.largest;
    let power = exp_of_distance(-abs(distance));
    if distance > 0.0 {
        return Exponentials(b.largest, a.sum * power + b.sum);
    }
    return Exponentials(a.largest, a.sum + b.sum * power);
}
