// What kind of float a value is, by its bits.
import package::lib::math::{is_finite, is_inf, is_nan};

fn isnan(x: f32) -> bool {
    return is_nan(x);
}

fn isinf(x: f32) -> bool {
    return is_inf(x);
}

fn isfinite(x: f32) -> bool {
    return is_finite(x);
}
