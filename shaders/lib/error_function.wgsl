// The error function and what is made of it, accurate over the whole f32 range on every adapter.
//
// The form of the far part is that of Shepherd and Laframboise (1981, doi:10.1090/S0025-5718-1981-0595058-X): the smooth
// function (1 + 2t) exp(t²) erfc(t) as a polynomial in (t - 2) / (t + 2). Coefficients are minimax fits.
//
// Largest errors measured, in ulp, against float64, over 4 (lavapipe) and 8 million arguments of all magnitudes:
//
//                  bound   lavapipe   NumPy
//   precise_erf      2       1.38      1.39
//   normal_cdf       6       4.41      4.68
//
import package::lib::math::{FIRST_12_BITS, NAN_BITS, is_nan, leading_bits, precise_exp, replace_bits};

const NEAR: f32 = 0.9;
const SQRT_HALF: f32 = 0.707106781;
const LARGEST_NORMAL: f32 = 87.3; // exp(-x) is subnormal beyond, which adapters compute or flush as they like

// exp(-factor x²) for a factor that is a power of two: the square of the first 12 bits is exact, and what is left over is
// small beside it.
fn exp_minus_square(x: f32, factor: f32) -> f32 {
    let magnitude = min(abs(x), 20.0);
    let high = leading_bits(magnitude, FIRST_12_BITS);
    let rest = (magnitude - high) * (magnitude + high);
    let value = precise_exp(-factor * high * high) * precise_exp(-factor * rest);
    return replace_bits(select(value, 0.0, factor * magnitude * magnitude > LARGEST_NORMAL), NAN_BITS, is_nan(x));
}

// erf(x) for |x| <= 0.93: relative error 2^-31.0.
fn erf_near(x: f32) -> f32 {
    let square = x * x;
    let series = (8.316928e-5 * square - 0.00081300555) * square + 0.0051999115;
    let series_low = ((series * square - 0.026858944) * square + 0.112836875) * square - 0.37612632;
    // What is added to a small x may be flushed to zero.
    return select(x + x * (series_low * square + 0.12837917), 1.12837917 * x, abs(x) < 1e-4);
}

// exp(t²) erfc(t) for t from 0.85 to 20: relative error 2^-29.0.
fn scaled_erfc(t: f32) -> f32 {
    let u = (t - 2.0) / (t + 2.0);
    let series = ((0.00021871759 * u - 0.0001684689) * u - 0.0016665679) * u + 0.0012339542;
    let series_middle = ((series * u + 0.008792227) * u - 0.008039714) * u - 0.054227613;
    let series_low = ((series_middle * u + 0.16405222) * u - 0.16603011) * u - 0.09276385;
    return (series_low * u + 1.2769784) / (1.0 + 2.0 * t);
}

fn precise_erf(x: f32) -> f32 {
    let t = clamp(abs(x), NEAR, 20.0);
    let far = 1.0 - exp_minus_square(t, 1.0) * scaled_erfc(t);
    let value = select(select(far, -far, x < 0.0), erf_near(x), abs(x) < NEAR);
    return replace_bits(value, NAN_BITS, is_nan(x));
}

// The distribution function of the standard normal, erfc(-x / sqrt(2)) / 2: it keeps its digits where it is small.
fn normal_cdf(x: f32) -> f32 {
    let t = clamp(abs(x) * SQRT_HALF, NEAR, 20.0);
    let tail = 0.5 * exp_minus_square(x, 0.5) * scaled_erfc(t);
    let near = abs(x) * SQRT_HALF < NEAR;
    let value = select(select(1.0 - tail, tail, x < 0.0), 0.5 + 0.5 * erf_near(x * SQRT_HALF), near);
    return replace_bits(value, NAN_BITS, is_nan(x));
}
