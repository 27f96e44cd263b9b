// log(1 + x), accurate for small x.
import package::lib::math::log1p;

fn log1p_(x: f32) -> f32 {
    return log1p(x);
}
