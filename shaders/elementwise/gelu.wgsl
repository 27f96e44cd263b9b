// The Gaussian error linear unit: x times the normal distribution function (Hendrycks and Gimpel 2016, arXiv:1606.08415).
import package::lib::error_function::{exp_minus_square, normal_cdf};

const ONE_OVER_ROOT_TWO_PI: f32 = 0.398942280;

fn gelu(x: f32) -> f32 {
    return x * normal_cdf(x);
}

fn gelu_grad(g: f32, x: f32) -> f32 {
    return g * (normal_cdf(x) + x * (ONE_OVER_ROOT_TWO_PI * exp_minus_square(x, 0.5)));
}
