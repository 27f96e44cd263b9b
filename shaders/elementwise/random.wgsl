// Random numbers by counter: Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"),
// the same bits on every device. Element `index` of draw `stream` under `seed` depends on nothing else.
import package::lib::math::{NAN_BITS, is_nan, multiply_high, precise_cos, precise_log, replace_bits};

struct Words { a: u32, b: u32, c: u32, d: u32 }

const TWO_PI: f32 = 6.2831855;

// The third word of the counter: what is drawn, so that uniforms and normals of one seed are independent.
const BITS: u32 = 0u;
const NORMAL: u32 = 1u;

fn philox(counter: Words, key_low: u32, key_high: u32) -> Words {
    var w = counter;
    var k0 = key_low;
    var k1 = key_high;
    for (var turn = 0; turn < 10; turn++) {
        let high0 = multiply_high(0xD2511F53u, w.a);
        let low0 = 0xD2511F53u * w.a;
        let high1 = multiply_high(0xCD9E8D57u, w.c);
        let low1 = 0xCD9E8D57u * w.c;
        w = Words(high1 ^ w.b ^ k0, low1, high0 ^ w.d ^ k1, low0);
        k0 = k0 + 0x9E3779B9u;
        k1 = k1 + 0xBB67AE85u;
    }
    return w;
}

fn random_bits(index: u32, seed_low: u32, seed_high: u32, stream: u32) -> u32 {
    return philox(Words(index, stream, BITS, 0u), seed_low, seed_high).a;
}

// The upper 24 bits as a multiple of 2^-24 in [0, 1).
fn fraction(bits: u32) -> f32 {
    return f32(bits >> 8u) * 5.9604645e-8;
}

// By Box and Muller (1958).
fn normal_of(bits: Words) -> f32 {
    // In (0, 1], so that the logarithm is finite.
    let radius = f32((bits.a >> 8u) + 1u) * 5.9604645e-8;
    return sqrt(-2.0 * precise_log(radius)) * precise_cos(TWO_PI * fraction(bits.b));
}

// Uniform in [0, 1), a multiple of 2^-24.
fn random_uniform(index: u32, seed_low: u32, seed_high: u32, stream: u32) -> f32 {
    return fraction(random_bits(index, seed_low, seed_high, stream));
}

// Standard normal.
fn random_normal(index: u32, seed_low: u32, seed_high: u32, stream: u32) -> f32 {
    return normal_of(philox(Words(index, stream, NORMAL, 0u), seed_low, seed_high));
}

// The same for the draws of users: `replay` numbers the replays of compiled steps from 1, and is 0 outside of them.
// `first` is the number of the element that has the index 0.

fn draw_uniform(index: u32, seed_low: u32, seed_high: u32, stream: u32, replay: u32, first: u32) -> f32 {
    return fraction(philox(Words(first + index, stream, BITS, replay), seed_low, seed_high).a);
}

fn draw_normal(index: u32, seed_low: u32, seed_high: u32, stream: u32, replay: u32, first: u32) -> f32 {
    return normal_of(philox(Words(first + index, stream, NORMAL, replay), seed_low, seed_high));
}

// 1 with probability p; a p that is no probability makes NaN.
fn draw_bernoulli(
    p: f32, index: u32, seed_low: u32, seed_high: u32, stream: u32, replay: u32, first: u32,
) -> f32 {
    let drawn = select(0.0, 1.0, draw_uniform(index, seed_low, seed_high, stream, replay, first) < p);
    return replace_bits(drawn, NAN_BITS, !(p >= 0.0 && p <= 1.0) || is_nan(p));
}

fn next_replay(replay: u32) -> u32 {
    return replay + 1u;
}
