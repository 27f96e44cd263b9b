// The exponential.
import package::lib::math::precise_exp;

fn exp_(x: f32) -> f32 {
    return precise_exp(x);
}
