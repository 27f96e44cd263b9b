// The error function.
import package::lib::error_function::{exp_minus_square, precise_erf};

const TWO_OVER_ROOT_PI: f32 = 1.12837917;

fn erf(x: f32) -> f32 {
    return precise_erf(x);
}

fn erf_grad(g: f32, x: f32) -> f32 {
    return g * (TWO_OVER_ROOT_PI * exp_minus_square(x, 1.0));
}
