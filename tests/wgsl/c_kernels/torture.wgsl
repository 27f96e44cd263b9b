// All that a kernel may do and C does otherwise: memory and its layout, values made of values, vectors, control flow,
// atomics, barriers. Every invocation writes what it finds to a row of its own; floats are such that all are exact.
const ROW = 128u;
const LANES = 32u;
const TABLE = array<u32, 5>(3u, 1u, 4u, 1u, 5u);
const POINTS = array<vec3<f32>, 2>(vec3<f32>(1.0, 2.0, 3.0), vec3<f32>(-4.0, 5.0, -6.0));
const KEPT: vec2<i32> = vec2<i32>(-7, 9);
const half: f32 = 0.5;

struct Cell { place: vec3<f32>, weight: f32, parts: array<vec3<u32>, 2>, tail: vec2<f32> }
struct Settings { scale: f32, origin: vec3<f32>, bias: f32, steps: vec2<u32>, count: i32 }
struct Totals { largest: atomic<i32>, smallest: atomic<u32>, flags: atomic<u32>, bins: array<atomic<u32>> }
struct Pair { low: i32, high: i32 }
struct Deep { pair: Pair, list: array<Pair, 3>, is_set: bool, long: vec2<bool> }

@group(0) @binding(0) var<storage, read> cells: array<Cell>;
@group(0) @binding(1) var<storage, read> points: array<vec3<f32>>;
@group(0) @binding(2) var<storage, read_write> single: vec3<f32>;
@group(0) @binding(3) var<storage, read_write> totals: Totals;
@group(0) @binding(4) var<storage, read_write> results: array<u32>;
@group(0) @binding(5) var<uniform> settings: Settings;

var<workgroup> shared_points: array<vec3<f32>, LANES>;
var<workgroup> shared_flags: array<bool, LANES>;
var<workgroup> shared_deep: Deep;
var<workgroup> shared_bins: array<atomic<u32>, 4>;
var<workgroup> chosen: vec2<u32>;
var<private> cursor: u32;
var<private> seen: array<i32, 3> = array<i32, 3>(5, -6, 7);

fn put(x: u32) {
    results[cursor] = x;
    cursor++;
}

fn put_f(x: f32) { put(bitcast<u32>(x)); }
fn put_i(x: i32) { put(bitcast<u32>(x)); }
fn put_b(x: bool) { put(select(0u, 1u, x)); }
fn put_3(x: vec3<f32>) { put_f(x.x); put_f(x[1]); put_f(x.b); }
fn put_4(x: vec4<u32>) { put(x.x); put(x.y); put(x.z); put(x.w); }

fn changed(deep: Deep, by: i32) -> Deep {
    var copy = deep;
    copy.list[by % 3].low += by;
    copy.pair = copy.list[(by + 1) % 3];
    copy.long[by & 1] = !copy.long.x;
    return copy;
}

fn bumped(list: array<i32, 3>) -> array<i32, 3> {
    var own = list;
    for (var i = 0; i < 3; i++) { own[i] *= i - 1; }
    return own;
}

fn layouts(lane: u32) {
    let cell = cells[lane % 2u];
    put_3(cell.place + settings.origin * settings.scale);
    put_f(cell.weight - settings.bias);
    put(cell.parts[1].z + cell.parts[lane % 2u].x);
    put_f(cells[1].tail.y);
    put(settings.steps.y);
    put_i(settings.count);
    put_3(points[lane % arrayLength(&points)]);
    put(arrayLength(&cells));
    put(arrayLength(&points));
    put(arrayLength(&totals.bins));
    if lane == 0u { single.y = 8.0; }
    put_f(single.x + single.z);
    put(TABLE[lane % 5u]);
    put_3(POINTS[lane % 2u]);
    put_i(KEPT.x * KEPT[lane % 2u]);
    put_f(half);
}

fn composites(lane: u32) {
    var deep = Deep(Pair(1, 2), array<Pair, 3>(Pair(3, 4), Pair(5, 6), Pair(7, 8)), true, vec2<bool>(false, true));
    deep = changed(deep, i32(lane % 4u));
    put_i(deep.pair.low + deep.list[lane % 3u].high);
    put_b(deep.long.y);
    let before = seen;
    seen = bumped(seen);
    put_i(seen[0] + seen[2] * before[lane % 3u]);
    var empty: Deep;
    put_i(empty.list[2].high);
    put_b(empty.is_set || empty.long.y);
    var x = 3.0;
    {
        let x = x * 2.0;
        put_f(x);
    }
    x += f32(lane);
    put_f(x);
}

fn vectors(lane: u32) {
    let a = vec4<f32>(f32(lane), 2.0, -3.0, 4.0);
    var b = a.wzyx;
    b.y *= 2.0;
    b[lane % 4u] -= 1.0;
    let c = select(a, b, a < b);
    put_f(dot(a, c));
    put_f(length(vec2<f32>(3.0, 4.0)) + distance(vec3<f32>(2.0, 3.0, 6.0), vec3<f32>()));
    put_3(cross(a.xyz, b.zyx));
    put_3(reflect(vec3<f32>(1.0, -2.0, 0.0), vec3<f32>(0.0, 1.0, 0.0)));
    put_3(faceForward(a.xyz, b.xyz, vec3<f32>(1.0)));
    put_3(normalize(vec3<f32>(0.0, 0.0, -5.0)));
    put_f(mix(vec2<f32>(2.0, 4.0), vec2<f32>(6.0), 0.25).y);
    put_b(all(a.xy == b.wz));
    put_b(any(a > vec4<f32>(3.5)));
    let n = vec4<i32>(a) * vec4<i32>(lane32(lane), 3, -1, 7) / vec4<i32>(0, -2, i32(lane) - 3, 2);
    put_4(bitcast<vec4<u32>>(n));
    put_4(bitcast<vec4<u32>>(n % vec4<i32>(i32(lane) - 1)));
    put_4((vec4<u32>(n) << vec4<u32>(lane, 1u, 33u + lane, 5u)) ^ (bitcast<vec4<u32>>(-n) >> vec4<u32>(4u)));
    put_4(vec4<u32>(vec4<f32>(-1.5, 1e20, 2.75, 0.5) * vec4<f32>(1.0, 1.0, f32(lane), 3.0)));
    put_f(vec2<f32>(vec2<bool>(lane > 3u, true)).x + f32(vec2<u32>(a.yw).y));
    put(vec3<u32>(vec2<u32>(lane, 2u), 3u).zxy.y);
    put_f((a + 1.0).x + (2.0 - b).w);
}

fn lane32(lane: u32) -> i32 { return i32(lane) * 715827882; }

fn packing(lane: u32) {
    let x = vec4<f32>(-1.0, 0.5, f32(lane) * 0.0625, 2.0);
    put(pack4x8snorm(x));
    put(pack4x8unorm(x));
    put(pack2x16snorm(x.xy));
    put(pack2x16unorm(x.yz));
    put(pack2x16float(vec2<f32>(f32(lane) + 0.333251953125, -65504.0)));
    put_f(unpack2x16float(0x3c01c000u + lane).x);
    put_f(unpack4x8unorm(0xff00ff00u).w + unpack4x8snorm(0x81807f00u).y);
    put_f(unpack2x16unorm(0xffff0000u).y + unpack2x16snorm(0x80007fffu).x);
    put_f(quantizeToF16(f32(lane) + 0.333251953125));
    let bytes = 0x80ff7f01u + lane;
    put(dot4U8Packed(bytes, 0x01020304u));
    put_i(dot4I8Packed(bytes, 0x01fe03ffu));
    put_4(unpack4xU8(bytes));
    put_4(bitcast<vec4<u32>>(unpack4xI8(bytes)));
    put(pack4xI8(vec4<i32>(-1, 200, i32(lane), -300)) ^ pack4xU8(vec4<u32>(lane, 300u, 7u, 255u)));
    put(pack4xI8Clamp(vec4<i32>(-1, 200, i32(lane), -300)) ^ pack4xU8Clamp(vec4<u32>(lane, 300u, 7u, 255u)));
}

fn flow(lane: u32) {
    var total = 0u;
    var i = 0u;
    loop {
        if i % 3u == lane % 3u { continue; }
        if total > 40u { break; }
        total += i;
        continuing {
            i++;
            break if i == 12u;
        }
    }
    put(total);
    var k = lane;
    loop {
        let step = k / 2u + 1u;
        k += step;
        continuing { total ^= step; break if k > 60u; }
    }
    put(total);
    for (var j = 0; j < 5; j++) {
        switch j + i32(lane % 2u) {
            case 1, 4: { continue; }
            case 2: { if lane > 3u { break; } total += 100u; }
            default: { total *= 3u; }
        }
        total += 7u;
    }
    put(total);
    while total > 9u && total % 10u != 5u { total /= 2u; }
    put(total);
}

fn next_ticket() -> u32 { return atomicAdd(&shared_bins[3], 1u); }

fn together(lane: u32) {
    shared_points[lane] = vec3<f32>(f32(lane), -1.0, 0.5) * settings.scale;
    shared_flags[lane] = lane % 3u == 0u;
    if lane == 5u {
        shared_deep = Deep(); // wgpu does not clear the memory of workgroups
        shared_deep = changed(shared_deep, 4);
        chosen = vec2<u32>(lane, 17u);
    }
    if lane < 4u { atomicStore(&shared_bins[lane], lane * 10u); }
    workgroupBarrier();
    put_3(shared_points[(lane + 1u) % LANES]);
    put_b(shared_flags[(lane + 3u) % LANES]);
    put_i(shared_deep.list[1].low);
    put(workgroupUniformLoad(&chosen).y);
    atomicAdd(&shared_bins[0], lane);
    atomicMax(&shared_bins[1], lane * 3u);
    atomicXor(&shared_bins[2], 1u << lane);
    atomicMax(&totals.largest, 3 - i32(lane));
    atomicMin(&totals.smallest, lane + 40u);
    atomicOr(&totals.flags, 1u << (lane % 7u));
    atomicSub(&totals.bins[lane % arrayLength(&totals.bins)], lane);
    if lane == 0u {
        let first = next_ticket() * 100u + next_ticket();
        put(first);
        let kept = atomicCompareExchangeWeak(&totals.bins[1], 12345u, 1u);
        put_b(kept.exchanged);
    }
    var turns = 0u;
    var old = atomicLoad(&totals.bins[0]);
    loop {
        let tried = atomicCompareExchangeWeak(&totals.bins[0], old, old + 5u);
        turns += 1u;
        if tried.exchanged || turns > 1000u { break; }
        old = tried.old_value;
    }
    workgroupBarrier();
    put(atomicLoad(&shared_bins[0]));
    put(atomicLoad(&shared_bins[1]));
    put(atomicLoad(&shared_bins[2]));
    workgroupBarrier();
    if lane == 9u { put(atomicExchange(&shared_bins[1], 77u)); }
}

@compute @workgroup_size(8, 2, 2)
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    cursor = ROW * lane;
    put(id.x + 100u * id.y + 10000u * id.z);
    put(local.x + 100u * local.y + 10000u * local.z);
    put(group.x + groups.x);
    layouts(lane);
    composites(lane);
    vectors(lane);
    packing(lane);
    flow(lane);
    together(lane);
}
