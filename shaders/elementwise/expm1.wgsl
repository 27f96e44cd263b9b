// exp(x) - 1, accurate for small x.
import package::lib::math::expm1;

fn expm1_(x: f32) -> f32 {
    return expm1(x);
}
