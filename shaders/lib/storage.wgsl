// How numbers are stored in fewer than 32 bits, and read again: bfloat16, float16, and the 8-bit dynamic map of
// Dettmers et al. 2022 (arXiv:2110.02861). bfloat16 by integers alone; subnormals of float16 and the map by float32.
import package::lib::math::{is_inf, is_nan, power_of_two, replace_bits};

const MAGNITUDE: u32 = 0x7fffffffu;
const SIGN: u32 = 0x80000000u;
const INFINITY: u32 = 0x7f800000u;

// --- bfloat16: the upper half of a float32 ---------------------------------------------------------------------------

fn bfloat16_bits_plus(bits: u32, below: u32) -> u32 {
    // NaN stays NaN, and infinity infinity.
    return select((bits + below) >> 16u, (bits >> 16u) | select(0u, 0x40u, (bits & 0x7fffffu) != 0u), (bits & INFINITY) == INFINITY);
}

// To the nearest, ties to even.
fn to_bfloat16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return bfloat16_bits_plus(bits, 0x7fffu + ((bits >> 16u) & 1u));
}

// Up with the probability of what is cut off: `random` has 32 random bits, of which the lower half is used.
fn to_bfloat16_stochastic(x: f32, random: u32) -> u32 {
    return bfloat16_bits_plus(bitcast<u32>(x), random & 0xffffu);
}

// Bits to round with, which differ from place to place and from seed to seed (Jarzynski and Olano 2020, PCG).
fn rounding_bits(place: u32, seed: u32) -> u32 {
    let state = (place ^ (seed * 0x9e3779b9u)) * 747796405u + 2891336453u;
    let word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
    return (word >> 22u) ^ word;
}

fn from_bfloat16(bits: u32) -> f32 {
    return bitcast<f32>(bits << 16u);
}

// A float32 in two halves: the upper one rounded to the nearest, ties away from zero, as a float32 whose lower half is
// zero; and the lower one as it is, which tells whether that was up or down.
fn upper_half(x: f32) -> f32 {
    return from_bfloat16(bfloat16_bits_plus(bitcast<u32>(x), 0x8000u));
}

fn lower_half(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return select(bits & 0xffffu, 0u, (bits & INFINITY) == INFINITY);
}

// Where the upper one has more digits, or is 0 or infinite and the lower one leads beyond, somebody else has set it
// since, and it is all there is.
fn join_halves(upper: f32, lower: u32) -> f32 {
    let bits = bitcast<u32>(upper);
    let down = lower & 0x8000u;
    let is_set = ((bits & 0xffffu) != 0u) | ((bits & MAGNITUDE) == select(INFINITY, 0u, down != 0u));
    return bitcast<f32>(select(bits + lower - (down << 1u), bits, is_set));
}

// A number of bfloat16, and as such what was cut off. Where the number has more digits, or that is more than half its
// spacing, somebody else has set it since, and it is all there is.
fn add_cut_off(rounded: f32, cut_off: u32) -> f32 {
    let bits = bitcast<u32>(rounded);
    let half_spacing = max(bits & INFINITY, 0x4000000u) - 0x4000000u; // 2^-8 of its power of two
    let is_set = ((bits & 0xffffu) != 0u) | (((cut_off & 0x7fffu) << 16u) > half_spacing);
    return rounded + from_bfloat16(select(cut_off, 0u, is_set));
}

// --- float16 ---------------------------------------------------------------------------------------------------------

// To the nearest, ties to even; from 65,520 on infinity.
fn to_float16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & MAGNITUDE;
    let is_subnormal = magnitude < 0x38800000u; // 2^-14
    let counted = select(0.0, bitcast<f32>(magnitude), is_subnormal) * 16777216.0; // 2^24
    let subnormal = u32(round(counted));
    let normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u;
    let finite = select(normal, subnormal, is_subnormal);
    let overflow = select(0x7c00u, 0x7e00u, magnitude > INFINITY);
    return ((bits & SIGN) >> 16u) | select(finite, overflow, magnitude >= 0x477ff000u); // 65,520
}

fn from_float16(half: u32) -> f32 {
    let sign = (half & 0x8000u) << 16u;
    let exponent = half & 0x7c00u;
    let mantissa = half & 0x3ffu;
    let normal = ((half & 0x7fffu) << 13u) + 0x38000000u;
    let subnormal = bitcast<u32>(f32(mantissa) * 5.9604644775390625e-8); // 2^-24
    let special = INFINITY | (mantissa << 13u);
    let magnitude = select(select(normal, subnormal, exponent == 0u), special, exponent == 0x7c00u);
    return bitcast<f32>(magnitude | sign);
}

// --- 8 bits: dynamic map ---------------------------------------------------------------------------------------------
//
// A block of 256 numbers is stored as its largest magnitude and, for each, the nearest of 256 numbers in [-1, 1], or in
// [0, 1] where none is negative. These lie in seven decades, twice as many in each as in the one below: 1 to 64 of either
// sign, or 2 to 128; each in the middle of its share of the decade. 0 and 1 are among them. `more` is 0 with signs and 1
// without. A code is the place in the sorted map; a rank is that among the numbers above 0.

fn decade_end(decade: u32) -> f32 {
    let low = select(select(select(1e-6, 1e-5, decade >= 1u), 1e-4, decade >= 2u), 1e-3, decade >= 3u);
    return select(select(select(low, 1e-2, decade >= 4u), 1e-1, decade >= 5u), 1.0, decade >= 6u);
}

// The number of this rank, from 0 (which is 0.0) to 128 + 127 more (which is 1.0).
fn dynamic_value(rank: u32, more: u32) -> f32 {
    let place = min(rank + more, (128u << more) - 1u);
    let decade = firstLeadingBit(max(place, 1u)) - more;
    let share = power_of_two(-i32(decade + more));
    let within = f32(place) * share - 1.0;
    let value = decade_end(decade) * (0.1 + 0.9 * (within + 0.5 * share));
    return select(select(value, 0.0, rank == 0u), 1.0, rank + more >= (128u << more));
}

// The rank of the nearest number, for a magnitude up to 1; of two as near the lower one.
fn dynamic_rank(magnitude: f32, more: u32) -> u32 {
    var decade = 0u;
    for (var i = 1u; i < 7u; i++) {
        decade = select(decade, i, magnitude >= 0.1 * decade_end(i));
    }
    let count = f32(1u << (decade + more));
    let within = clamp((magnitude / decade_end(decade) - 0.1) * 1.1111112 * count, 0.0, count - 1.0);
    let rank = (1u << (decade + more)) + u32(within) - more;
    let value = dynamic_value(rank, more);
    let above = 0.5 * (value + dynamic_value(rank + 1u, more));
    let below = 0.5 * (value + dynamic_value(rank - 1u, more));
    return select(select(rank, rank - 1u, magnitude <= below), rank + 1u, magnitude > above);
}

// The code of x / largest, with signs.
fn to_dynamic8(x: f32, largest: f32) -> u32 {
    let scaled = select(0.0, x / select(1.0, largest, largest > 0.0), largest > 0.0);
    let rank = dynamic_rank(abs(scaled), 0u);
    return select(127u + rank, 127u - min(rank, 127u), scaled < 0.0);
}

fn from_dynamic8(code: u32, largest: f32) -> f32 {
    let is_negative = code < 127u;
    let value = dynamic_value(select(code - 127u, 127u - code, is_negative), 0u);
    return largest * select(value, -value, is_negative);
}

// The same for numbers that are not negative.
fn to_dynamic8_unsigned(x: f32, largest: f32) -> u32 {
    return dynamic_rank(select(0.0, max(x, 0.0) / select(1.0, largest, largest > 0.0), largest > 0.0), 1u);
}

fn from_dynamic8_unsigned(code: u32, largest: f32) -> f32 {
    return largest * dynamic_value(code, 1u);
}
