// An option of a parameter group, and what rules derive from it.
import package::lib::math::precise_log;

struct Option { is_changed: bool, value: f32, one_minus: f32, log: f32 }

fn option_of(value: f32, is_changed: bool) -> Option {
    return Option(is_changed, value, 1.0 - value, select(-100.0, precise_log(value), value > 0.0));
}
