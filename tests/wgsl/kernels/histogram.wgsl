// Counts of values by their exponent, first in workgroup memory, then added to the buffer; and a lock-free maximum.
const BINS = 32u;

struct Totals { largest_bits: atomic<u32>, signs: atomic<i32>, bins: array<atomic<u32>> }

@group(1) @binding(2) var<storage, read> values: array<f32>;
@group(1) @binding(7) var<storage, read_write> totals: Totals;

var<workgroup> local_bins: array<atomic<u32>, BINS>;
var<workgroup> is_last: u32;
var<private> seen: i32 = -1;

fn bin_of(x: f32) -> u32 {
    let exponent = (bitcast<u32>(x) >> 23u) & 0xffu;
    switch exponent {
        case 0x00u, 0xffu: { return 0u; }
        case 127u: { return 1u; }
        default: {}
    }
    return 2u + exponent % (BINS - 2u);
}

fn raise_maximum(bits: u32) {
    var old = atomicLoad(&totals.largest_bits);
    while old < bits {
        let result = atomicCompareExchangeWeak(&totals.largest_bits, old, bits);
        if result.exchanged { break; }
        old = result.old_value;
    }
}

@compute @workgroup_size(64)
fn histogram(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) lane: u32) {
    if lane < BINS { atomicStore(&local_bins[lane], 0u); }
    if lane == 0u { is_last = u32(id.x + 64u >= arrayLength(&values)); }
    workgroupBarrier();
    if id.x < arrayLength(&values) {
        let x = values[id.x];
        seen = select(1, -1, x < 0.0);
        atomicAdd(&local_bins[bin_of(x)], 1u);
        atomicMax(&totals.signs, seen);
        raise_maximum(bitcast<u32>(abs(x)));
    }
    workgroupBarrier();
    let ends = workgroupUniformLoad(&is_last);
    if lane < BINS {
        let count = atomicLoad(&local_bins[lane]);
        if count != 0u && ends < 2u { _ = atomicAdd(&totals.bins[lane], count); }
    }
}
