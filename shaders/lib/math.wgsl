// Elementary functions in plain WGSL, accurate over the whole f32 range on every adapter and every other target.
//
// Largest errors measured, in ulp, against float64:
//
//                  bound   lavapipe   SwiftShader   NumPy
//   precise_exp      2       0.95        0.92        0.92
//   precise_log      2       0.85        0.79        0.80
//   expm1            4       1.45        1.43        1.37
//   log1p            4       2.40        2.36        2.38
//   precise_pow      4       2.14        1.27        1.63
//   precise_tanh     4       1.44        1.32        1.41
//   precise_sin      4       2.66        2.55        2.57
//   precise_cos      4       2.64        2.63        2.58
//
// lavapipe (Vulkan): 67 million arguments over all bit patterns, and every float where the error is largest (40 to 200
// million for each function; 117 million pairs near the worst bases for pow); SwiftShader (Chromium): 4 million; NumPy:
// 17 million. Divisions that are off by 2 ulp, as WGSL allows, bring tanh to 2.3 and leave pow as it is.
//
// Special values are C99's (Annex F), NaN payloads apart. A subnormal argument may count as zero and a subnormal result
// may be flushed to zero, as WGSL allows; log and pow read subnormals from their bits, so they are right wherever the
// bits arrive (where the adapter flushes them, log gives -inf).
//
// How it stays accurate on compilers that contract `a * b + c`, reassociate sums, or assume that NaN does not occur:
//   - every product that has to be exact has factors so short that it is, fused or not;
//   - sums that must not be regrouped pass through `leading_bits`, which clears mantissa bits that are zero already: no
//     compiler sees through it;
//   - special values are recognised and put in place as integers; no float expression computes them, used or not.
// There are no branches and no loops: every function is if-converted already. u32 arithmetic wraps, as WGSL defines it.

const SIGN_BIT: u32 = 0x80000000u;
const MAGNITUDE_BITS: u32 = 0x7fffffffu;
const INFINITY_BITS: u32 = 0x7f800000u;
const NAN_BITS: u32 = 0x7fc00000u;
const MINUS_INFINITY_BITS: u32 = 0xff800000u;
const ONE_BITS: u32 = 0x3f800000u;
const MINUS_ONE_BITS: u32 = 0xbf800000u;
const SMALLEST_NORMAL_BITS: u32 = 0x00800000u;
const EXPONENT_UNIT: i32 = 0x00800000; // one step of the exponent field

// Below 2^-25, f(x) = x + O(x^2) rounds to x.
const NEGLIGIBLE_BITS: u32 = 0x33000000u;

const LOG2_E: f32 = 1.44269504;
const LN2: f32 = 0.693147181;
const LN2_HEAD: f32 = 0.693145751953125; // 15 bits: exact when multiplied by an exponent
const LN2_TAIL: f32 = 1.42860677e-6;

const LARGEST_EXPONENT: f32 = 88.7228317; // of e: the next float overflows

// --- Bits ------------------------------------------------------------------------------------------------------------

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & MAGNITUDE_BITS) > INFINITY_BITS;
}

fn is_inf(x: f32) -> bool {
    return (bitcast<u32>(x) & MAGNITUDE_BITS) == INFINITY_BITS;
}

fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & MAGNITUDE_BITS) < INFINITY_BITS;
}

// WGSL refuses to bitcast a constant to NaN or infinity, hence the variables.
fn quiet_nan() -> f32 {
    var bits = NAN_BITS;
    return bitcast<f32>(bits);
}

fn infinity() -> f32 {
    var bits = INFINITY_BITS;
    return bitcast<f32>(bits);
}

// `bits` where the condition holds, otherwise the value; chosen as integers, because a compiler may drop a float NaN.
fn replace_bits(value: f32, bits: u32, condition: bool) -> f32 {
    return bitcast<f32>(select(bitcast<u32>(value), bits, condition));
}

// A value that is computed with another one, and NaN where that is NaN.
fn or_nan(value: f32, other: f32) -> f32 {
    return replace_bits(value, NAN_BITS, is_nan(other));
}

fn power_of_two(exponent: i32) -> f32 {
    return bitcast<f32>((exponent + 127) * EXPONENT_UNIT);
}

// value * 2^exponent for value in [0.5, 2) and |exponent| <= 160, with overflow to infinity and gradual underflow.
fn scale_by_power_of_two(value: f32, exponent: i32) -> f32 {
    let biased = bitcast<i32>(bitcast<u32>(value) >> 23u) + exponent;
    let overflow = biased >= 255;
    let lift = select(0, 64, biased <= 0);
    let lifted_exponent = select(exponent + lift, 0, overflow);
    let lifted = bitcast<f32>(bitcast<i32>(value) + lifted_exponent * EXPONENT_UNIT);
    return replace_bits(lifted * power_of_two(-lift), INFINITY_BITS, overflow);
}

// --- Pairs of floats: high + low, where `high` is short enough for exact products ------------------------------------

struct DoubleFloat { high: f32, low: f32 }

const FIRST_12_BITS: u32 = 0xfffff000u;
const FIRST_16_BITS: u32 = 0xffffff00u;
const FIRST_20_BITS: u32 = 0xfffffff0u; // where the value has no more: changes nothing, but keeps sums in order
const FIRST_23_BITS: u32 = 0xfffffffeu; // the same for low parts, whose last bit does not count

fn leading_bits(x: f32, mask: u32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & mask);
}

// x as its first bits and the rest.
fn split_float(x: f32, mask: u32) -> DoubleFloat {
    let high = leading_bits(x, mask);
    return DoubleFloat(high, leading_bits(x - high, FIRST_20_BITS));
}

// a + b with a high part of 12 bits, for a of at most 20 bits that is zero or not small beside b (Dekker's Fast2Sum).
fn add_as_pair(a: f32, b: f32) -> DoubleFloat {
    let high = leading_bits(a + b, FIRST_12_BITS);
    return DoubleFloat(high, leading_bits(leading_bits(a - high, FIRST_20_BITS) + b, FIRST_23_BITS));
}

// --- exp, expm1 ------------------------------------------------------------------------------------------------------

struct ReducedExponent { remainder: f32, exponent: i32 }

// x = exponent * ln 2 + remainder, |remainder| <= 0.347, for |x| <= 104 (Cody and Waite 1980).
fn reduce_exp(x: f32) -> ReducedExponent {
    let multiple = round(x * LOG2_E);
    let parts = split_float(x, FIRST_16_BITS);
    let high = leading_bits(parts.high - multiple * LN2_HEAD, FIRST_20_BITS);
    return ReducedExponent(high + (parts.low - multiple * LN2_TAIL), i32(multiple));
}

// e^r - 1 for |r| <= 0.3475: minimax, relative error 2^-31.0.
fn expm1_polynomial(r: f32) -> f32 {
    let series = 0.000197644142 * r + 0.00139323808;
    let series_low = ((series * r + 0.00833354332) * r + 0.0416664928) * r + 0.166666657;
    return r + r * r * (series_low * r + 0.5);
}

// x within the bounds, and zero for NaN: then every conversion to an integer is defined.
fn clamp_without_nan(x: f32, low: f32, high: f32) -> f32 {
    return clamp(select(x, 0.0, is_nan(x)), low, high);
}

fn precise_exp(x: f32) -> f32 {
    let reduced = reduce_exp(clamp_without_nan(x, -104.0, 89.0));
    let value = scale_by_power_of_two(1.0 + expm1_polynomial(reduced.remainder), reduced.exponent);
    return replace_bits(value, NAN_BITS, is_nan(x));
}

// 2^n (e^r - 1) + (2^n - 1), half of it first, as 2^128 does not exist; for n = 0 the polynomial itself.
fn expm1(x: f32) -> f32 {
    let reduced = reduce_exp(clamp_without_nan(x, -18.0, LARGEST_EXPONENT));
    let near = expm1_polynomial(reduced.remainder);
    let half_power = power_of_two(reduced.exponent - 1);
    let far = 2.0 * (half_power * near + (half_power - 0.5));
    let value = replace_bits(select(far, near, reduced.exponent == 0), INFINITY_BITS, x > LARGEST_EXPONENT);
    let negligible = (bitcast<u32>(x) & MAGNITUDE_BITS) < NEGLIGIBLE_BITS;
    return replace_bits(replace_bits(value, bitcast<u32>(x), negligible), NAN_BITS, is_nan(x));
}

// --- log, log1p ------------------------------------------------------------------------------------------------------

struct DecomposedFloat { mantissa: f32, exponent: i32 }

const TWO_THIRDS_BITS: i32 = 0x3f2aaaab;
const SQRT_THREE_QUARTERS_BITS: i32 = 0x3f5db3d7;

// The positive number with these bits as mantissa * 2^exponent, the mantissa in [lowest, 2 lowest), which is given by
// its bits. A subnormal is its bits, as an integer, times 2^-149.
fn decompose_float(bits: u32, lowest: i32) -> DecomposedFloat {
    let subnormal = bits < SMALLEST_NORMAL_BITS;
    let normal_bits = select(bitcast<i32>(bits), bitcast<i32>(f32(bits)), subnormal);
    let exponent = (normal_bits - lowest) >> 23u;
    let mantissa = bitcast<f32>(normal_bits - exponent * EXPONENT_UNIT);
    return DecomposedFloat(mantissa, exponent - select(0, 149, subnormal));
}

// exponent * ln 2 + log(1 + f) for |f| <= 1/3, log(1 + f) = f - f^2/2 + f^3 P(f): minimax, relative error 2^-30.1.
fn log_polynomial(f: f32, exponent: f32) -> f32 {
    let series = ((0.119584598 * f - 0.128301099) * f + 0.107695557) * f - 0.121994182;
    let series_middle = ((series * f + 0.143027171) * f - 0.166792959) * f + 0.199996814;
    let series_low = (series_middle * f - 0.249998271) * f + 0.333333343;
    let square = f * f;
    let correction = exponent * LN2_TAIL + (square * f * series_low - 0.5 * square);
    return exponent * LN2_HEAD + (f + correction);
}

fn precise_log(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let zero = (bits & MAGNITUDE_BITS) == 0u;
    let parts = decompose_float(bits & MAGNITUDE_BITS, TWO_THIRDS_BITS);
    let value = log_polynomial(parts.mantissa - 1.0, f32(parts.exponent));
    // As unsigned integers, infinity, the NaNs and all negative numbers follow the finite positive ones.
    let special = select(NAN_BITS, INFINITY_BITS, bits == INFINITY_BITS);
    let with_special = replace_bits(value, special, bits >= INFINITY_BITS);
    return replace_bits(with_special, MINUS_INFINITY_BITS, zero);
}

// log(2^n (1 + f)) with 1 + x = 2^n (1 + f). For n = 0, f is x itself; elsewhere the rounding of 1 + x costs 1.5 ulp.
fn log1p(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let argument = select(0.0, x, is_finite(x) && (x > -1.0));
    let parts = decompose_float(bitcast<u32>(1.0 + argument), TWO_THIRDS_BITS);
    let fraction = select(parts.mantissa - 1.0, argument, parts.exponent == 0);
    let value = log_polynomial(fraction, f32(parts.exponent));
    let negligible = (bits & MAGNITUDE_BITS) < NEGLIGIBLE_BITS;
    let with_unchanged = replace_bits(value, bits, negligible || (bits == INFINITY_BITS));
    let invalid = (bits > MINUS_ONE_BITS) || is_nan(x);
    return replace_bits(replace_bits(with_unchanged, NAN_BITS, invalid), MINUS_INFINITY_BITS, bits == MINUS_ONE_BITS);
}

// --- pow -------------------------------------------------------------------------------------------------------------

const TWO_OVER_LN2: f32 = 2.88539008;
const TWO_OVER_LN2_HEAD: f32 = 2.8857421875;
const TWO_OVER_LN2_TAIL: f32 = -0.000352105679;
const LOG2_THREE_HALVES_HEAD: f32 = 0.5849609375;
const LOG2_THREE_HALVES_TAIL: f32 = 1.5632211e-6;

// log2 of the positive number with these bits, with a relative error below 2^-29.9. The mantissa m lies near c = 1 or
// 1.5, s = (m - c) / (m + c), |s| <= 0.101, and log2(m) = log2(c) + 2/ln 2 (s + s^3 R(s^2)), where R is minimax with
// relative error 2^-35.7 (the intervals are those of FreeBSD's e_powf.c).
fn log2_pair(bits: u32) -> DoubleFloat {
    let parts = decompose_float(bits, SQRT_THREE_QUARTERS_BITS);
    let upper = parts.mantissa >= 1.22474492;
    let center = select(1.0, 1.5, upper);
    let difference = parts.mantissa - center;
    let sum = parts.mantissa + center;
    let sum_high = leading_bits(sum, FIRST_12_BITS);
    let sum_low = parts.mantissa - leading_bits(sum_high - center, FIRST_20_BITS);

    // The quotient in two parts: a short estimate, and what it leaves over, divided again.
    let reciprocal = 1.0 / sum;
    let ratio_high = leading_bits(difference * reciprocal, FIRST_12_BITS);
    let left_over = leading_bits(difference - ratio_high * sum_high, FIRST_20_BITS) - ratio_high * sum_low;
    let ratio_low = left_over * reciprocal;
    let ratio = ratio_high + ratio_low;
    let square = ratio * ratio;
    let series = ratio * square * ((0.144843534 * square + 0.199990273) * square + 0.333333343);
    let half_log = add_as_pair(ratio_high, ratio_low + series);

    let product_high = half_log.high * TWO_OVER_LN2_HEAD;
    let product_low = half_log.high * TWO_OVER_LN2_TAIL + half_log.low * TWO_OVER_LN2;
    let whole = f32(parts.exponent) + select(0.0, LOG2_THREE_HALVES_HEAD, upper);
    let log2_sum = add_as_pair(whole, product_high);
    return DoubleFloat(log2_sum.high, log2_sum.low + (product_low + select(0.0, LOG2_THREE_HALVES_TAIL, upper)));
}

// |x|^y = 2^(y log2|x|), the product in two parts; then the sign and C99's special cases.
fn precise_pow(x: f32, y: f32) -> f32 {
    let x_bits = bitcast<u32>(x);
    let y_bits = bitcast<u32>(y);
    let base_bits = x_bits & MAGNITUDE_BITS;
    let x_negative = x_bits >= SIGN_BIT;

    // Past 2^40 every y is even, and every power but those of 1 overflows or underflows.
    let exponent = split_float(clamp_without_nan(y, -1099511627776.0, 1099511627776.0), FIRST_12_BITS);
    let log2_base = log2_pair(base_bits);
    let product_high = exponent.high * log2_base.high;
    let product_low = exponent.high * log2_base.low + exponent.low * (log2_base.high + log2_base.low);
    let out_of_range = abs(product_high + product_low) > 152.0;
    let high = split_float(select(product_high, 0.0, out_of_range), FIRST_16_BITS);
    let low = high.low + select(product_low, 0.0, out_of_range);
    let whole = round(high.high + low);
    let fraction = leading_bits(high.high - whole, FIRST_20_BITS) + low;
    let power = scale_by_power_of_two(1.0 + expm1_polynomial(fraction * LN2), i32(whole));

    let limit = select(0u, INFINITY_BITS, (base_bits > ONE_BITS) == (y_bits < SIGN_BIT));
    let base_is_limit = (base_bits == 0u) || (base_bits == INFINITY_BITS);
    let magnitude = replace_bits(power, limit, base_is_limit || out_of_range);

    let y_bounded = exponent.high + exponent.low;
    let y_integer = floor(y_bounded) == y_bounded;
    let y_odd = y_integer && (floor(0.5 * y_bounded) != 0.5 * y_bounded);
    let signed_bits = bitcast<u32>(magnitude) | select(0u, SIGN_BIT, x_negative && y_odd);
    let no_real_power = x_negative && !y_integer && !base_is_limit;
    let invalid = is_nan(x) || is_nan(y) || no_real_power;
    let always_one = (x_bits == ONE_BITS) || ((y_bits & MAGNITUDE_BITS) == 0u);
    return bitcast<f32>(select(select(signed_bits, NAN_BITS, invalid), ONE_BITS, always_one));
}

// --- tanh ------------------------------------------------------------------------------------------------------------

// Up to 0.55 an odd polynomial (minimax, relative error 2^-29.7), from there 1 - 2 / (e^2|x| + 1); 1 past 10.
fn precise_tanh(x: f32) -> f32 {
    let a = min(abs(select(x, 0.0, is_nan(x))), 10.0);
    let square = a * a;
    let series = (-0.0062428494 * square + 0.021050714) * square - 0.0538475476;
    let near = a + a * square * ((series * square + 0.133325443) * square - 0.333333164);
    let far = 1.0 - 2.0 / (precise_exp(2.0 * a) + 1.0);
    let magnitude = bitcast<u32>(select(far, near, a < 0.55));
    return bitcast<f32>(select(magnitude | (bitcast<u32>(x) & SIGN_BIT), NAN_BITS, is_nan(x)));
}

// --- sin, cos --------------------------------------------------------------------------------------------------------

const PI_OVER_4_BITS: u32 = 0x3f490fdbu;
const PI_OVER_2: f32 = 1.57079633;

// 64 zero bits, then the binary digits of 2/pi behind the point, by words.
fn two_over_pi_word(index: u32) -> u32 {
    let words_2_3 = select(0xa2f9836eu, 0x4e441529u, index == 3u);
    let words_4_5 = select(0xfc2757d1u, 0xf534ddc0u, index == 5u);
    let words_6_7 = select(0xdb629599u, 0x3c439041u, index == 7u);
    return select(select(select(words_6_7, words_4_5, index < 6u), words_2_3, index < 4u), 0u, index < 2u);
}

// 32 bits that begin `shift` bits into `first`.
fn funnel_shift(first: u32, second: u32, shift: u32) -> u32 {
    return (first << shift) | ((second >> 1u) >> (31u - shift));
}

// The upper word of a * b, by halves of 16 bits.
fn multiply_high(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let middle_other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (middle_other >> 16u);
}

struct ReducedAngle { remainder: f32, quadrant: u32 }

// |x| = quadrant * pi/2 + remainder with |remainder| <= pi/4, quadrant mod 4 (Payne and Hanek 1983). The mantissa times
// the 96 bits of 2/pi that matter at this exponent leaves 2 bits of quadrant and 62 of fraction; no f32 comes nearer to
// a multiple of pi/2 than 2^-30, so at least 30 of them are significant.
fn reduce_angle(magnitude_bits: u32) -> ReducedAngle {
    let mantissa = ((magnitude_bits & 0x007fffffu) | SMALLEST_NORMAL_BITS) << 8u;
    let position = max(magnitude_bits >> 23u, 126u) - 96u;
    let index = position >> 5u;
    let shift = position & 31u;
    let word0 = two_over_pi_word(index);
    let word1 = two_over_pi_word(index + 1u);
    let word2 = two_over_pi_word(index + 2u);
    let word3 = two_over_pi_word(index + 3u);
    let middle = funnel_shift(word1, word2, shift);
    let product_carry = multiply_high(mantissa, funnel_shift(word2, word3, shift));
    let product_low = mantissa * middle + product_carry;
    let carry = select(0u, 1u, product_low < product_carry);
    let product_high = mantissa * funnel_shift(word0, word1, shift) + multiply_high(mantissa, middle) + carry;

    // From the nearer side: past the half, the complement and the next quadrant.
    let fraction_high = (product_high << 2u) | (product_low >> 30u);
    let past_half = fraction_high >> 31u;
    let flip = select(0u, 0xffffffffu, past_half == 1u);
    let turned = f32(fraction_high ^ flip) * 2.32830644e-10 + f32((product_low << 2u) ^ flip) * 5.42101086e-20;
    let remainder = bitcast<f32>(bitcast<u32>(turned * PI_OVER_2) | (past_half << 31u));
    let reduced = magnitude_bits > PI_OVER_4_BITS;
    let quadrant = select(0u, (product_high >> 30u) + past_half, reduced);
    return ReducedAngle(select(bitcast<f32>(magnitude_bits), remainder, reduced), quadrant);
}

// sin(remainder + quadrant * pi/2): minimax on [-pi/4, pi/4], relative errors 2^-32.5 for sin and 2^-33.0 for cos.
fn sin_of_angle(r: f32, quadrant: u32) -> f32 {
    let square = r * r;
    let sin_series = (2.83250924e-6 * square - 0.000198530636) * square + 0.00833337940;
    let sin_value = r + r * square * (sin_series * square - 0.166666672);
    let cos_series = (2.44323270e-5 * square - 0.00138873095) * square + 0.0416666456;
    let cos_value = 1.0 - (0.5 * square - square * square * cos_series);
    let value = select(sin_value, cos_value, (quadrant & 1u) == 1u);
    return bitcast<f32>(bitcast<u32>(value) ^ ((quadrant & 2u) << 30u));
}

fn precise_sin(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let angle = reduce_angle(bits & MAGNITUDE_BITS);
    let value = bitcast<u32>(sin_of_angle(angle.remainder, angle.quadrant)) ^ (bits & SIGN_BIT);
    return bitcast<f32>(select(NAN_BITS, value, is_finite(x)));
}

fn precise_cos(x: f32) -> f32 {
    let angle = reduce_angle(bitcast<u32>(x) & MAGNITUDE_BITS);
    let value = bitcast<u32>(sin_of_angle(angle.remainder, angle.quadrant + 1u));
    return bitcast<f32>(select(NAN_BITS, value, is_finite(x)));
}
