// The power of two values, with C99's special cases: x^0 and 1^y are 1, and a negative base has integer exponents.
import package::lib::math::precise_pow;

fn power(x: f32, y: f32) -> f32 {
    return precise_pow(x, y);
}
