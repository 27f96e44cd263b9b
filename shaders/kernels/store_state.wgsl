// What `load_state` loads, back: a workgroup takes whole blocks of 256 elements, of which 8 bits need the largest
// magnitude first. The rest of a tensor's last block becomes zero.
import package::lib::storage::{rounding_bits, to_bfloat16_stochastic, to_dynamic8, to_dynamic8_unsigned, to_float16};

struct StoreParameters { kind: u32, size: u32, row_words: u32, gate_word: u32, step_word: u32, seed: u32 }

struct Entry { tensor: u32, stored: u32, loaded: u32 }

@group(0) @binding(0) var<storage, read_write> stored: array<u32>;
@group(0) @binding(1) var<storage, read_write> largest: array<f32>;
@group(0) @binding(2) var<storage, read> loaded: array<f32>;
@group(0) @binding(3) var<storage, read> entries: array<Entry>;
@group(0) @binding(4) var<storage, read> tensor_scalars: array<u32>;
@group(0) @binding(5) var<uniform> parameters: StoreParameters;

var<workgroup> codes: array<u32, 256>;
var<workgroup> most: atomic<u32>;

fn code_of(value: f32, top: f32, random: u32) -> u32 {
    switch parameters.kind {
        case 1u: {
            return to_bfloat16_stochastic(value, random);
        }
        case 2u: {
            return to_float16(value);
        }
        case 3u: {
            return to_dynamic8(value, top);
        }
        default: {
            return to_dynamic8_unsigned(value, top);
        }
    }
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let entry = entries[workgroup.y];
    let row = entry.tensor * parameters.row_words;
    let is_stored = tensor_scalars[row] == 1u && tensor_scalars[row + parameters.gate_word] != 0u;
    let seed = u32(bitcast<f32>(tensor_scalars[row + parameters.step_word])) * 2u + parameters.seed;
    let bits = select(8u, 16u, parameters.kind < 3u);
    let per_word = 32u / bits;
    let blocks = (parameters.size + 255u) / 256u;
    for (var block = workgroup.x; block < blocks; block += grid.x) {
        let element = block * 256u + lane;
        let at = entry.stored + element;
        var value = 0.0;
        if element < parameters.size {
            value = loaded[entry.loaded + element];
        }
        if lane == 0u {
            atomicStore(&most, 0u);
        }
        workgroupBarrier();
        // Not negative, so that bits are in the order of the numbers.
        atomicMax(&most, bitcast<u32>(abs(value)));
        workgroupBarrier();
        let top = bitcast<f32>(atomicLoad(&most));
        codes[lane] = code_of(value, top, rounding_bits(at, seed));
        workgroupBarrier();
        if is_stored && lane < 256u / per_word {
            var word = 0u;
            for (var part = 0u; part < per_word; part++) {
                word |= codes[lane * per_word + part] << (part * bits);
            }
            stored[(at - lane) / per_word + lane] = word;
            if bits == 8u && lane == 0u {
                largest[at / 256u] = top;
            }
        }
        workgroupBarrier();
    }
}
