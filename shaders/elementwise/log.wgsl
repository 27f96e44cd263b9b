// The natural logarithm.
import package::lib::math::precise_log;

fn log_(x: f32) -> f32 {
    return precise_log(x);
}
