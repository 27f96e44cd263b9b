// Counts the numbers that a device converts to f16 and back otherwise than lib/storage.wgsl does. Conversions keep the
// order of numbers, so each f16 and what lies halfway to the next one, and right beside that, tell for all.
enable f16;
import package::lib::storage::{from_float16, to_float16};

@group(0) @binding(0) var<storage, read_write> differences: array<atomic<u32>>;

const NAN: u32 = 0x7e00u; // which may have either sign

fn differs(x: f32) -> u32 {
    let ours = to_float16(x);
    let its = to_float16(f32(f16(x)));
    let is_nan = (ours & NAN) == NAN && (its & NAN) == NAN;
    return select(0u, 1u, ours != its && !is_nan);
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) invocation: vec3<u32>) {
    let half = invocation.x;
    let number = from_float16(half);
    let bits = bitcast<u32>(number);
    let is_subnormal = (half & 0x7c00u) == 0u;
    let between = bitcast<u32>((f32(half & 0x3ffu) + 0.5) * 5.9604644775390625e-8) | (bits & 0x80000000u); // 2^-24
    let halfway = select(bits + 0x1000u, between, is_subnormal);
    var count = differs(number) + differs(f32(half) * 65520.0);
    if (half & 0x7c00u) != 0x7c00u {
        count += differs(bitcast<f32>(halfway - 1u)) + differs(bitcast<f32>(halfway)) + differs(bitcast<f32>(halfway + 1u));
    }
    if count != 0u {
        atomicAdd(&differences[0], count);
    }
}
