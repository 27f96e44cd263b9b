// Half-precision and subgroups of at least 16.
enable f16;

struct Half { x: f16, v: vec3<f16>, y: f16 }

const THIRD: f16 = 1.0h / 3.0h;

@group(0) @binding(0) var<storage, read> halves: array<Half>;
@group(0) @binding(1) var<storage, read_write> stored: array<f16>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;

fn put(lane: u32, place: u32, x: u32) { results[lane * 24u + place] = x; }

@compute @workgroup_size(64)
fn main(
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) place: u32,
) {
    let half = halves[lane % 2u];
    var sum = half.x * THIRD + half.v.z;
    sum += max(half.y, 0.25h) - f16(lane);
    let v = half.v * sum + vec3<f16>(1.0h, 2.0h, f16(1) / 3);
    stored[lane] = sum;
    put(lane, 0u, bitcast<u32>(f32(sum)));
    put(lane, 1u, bitcast<u32>(f32(v.x) + f32(dot(v, half.v))));
    put(lane, 2u, u32(sum > -3.0h) + u32(i32(half.y * 100.0h)));
    put(lane, 3u, size + place);
    let x = lane * 7u + 1u;
    put(lane, 4u, subgroupAdd(x));
    put(lane, 5u, subgroupExclusiveAdd(x) + subgroupInclusiveAdd(vec2<u32>(1u, x)).x);
    put(lane, 6u, subgroupMax(x ^ 5u) + subgroupMin(x));
    put(lane, 7u, subgroupShuffleXor(x, 3u) + subgroupShuffle(x, (place + 1u) % size));
    put(lane, 8u, subgroupBroadcast(x, 9u) + subgroupBroadcastFirst(x));
    put(lane, 9u, subgroupBallot(lane % 5u == 0u).x);
    put(lane, 10u, u32(subgroupAll(lane < 40u)) + 2u * u32(subgroupAny(lane == 63u)));
    put(lane, 11u, quadSwapX(x) + 3u * quadSwapY(x) + 5u * quadSwapDiagonal(x) + 7u * quadBroadcast(x, 2u));
    put(lane, 12u, subgroupAnd(x | 8u) + subgroupOr(x) + subgroupXor(x));
    put(lane, 13u, bitcast<u32>(subgroupAdd(f32(lane)) + f32(subgroupMul(1.0h + f16(lane % 32u == 4u)))));
}
