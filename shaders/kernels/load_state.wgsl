// State that is stored in fewer bits, as float32: for kernels that know nothing of how it is stored. Kinds are places
// in BITS of `wgsl/slot_storage.py`. A row of the grid is one tensor, a workgroup takes blocks of it. Left out are tensors that
// are not active in this step, or whose word `gate_word` is zero.
import package::lib::storage::{from_bfloat16, from_dynamic8, from_dynamic8_unsigned, from_float16};

struct LoadParameters { kind: u32, size: u32, row_words: u32, gate_word: u32 }

// The number of a tensor, and the first elements of its state as it is stored and as it is loaded.
struct Entry { tensor: u32, stored: u32, loaded: u32 }

@group(0) @binding(0) var<storage, read> stored: array<u32>;
@group(0) @binding(1) var<storage, read> largest: array<f32>;
@group(0) @binding(2) var<storage, read_write> loaded: array<f32>;
@group(0) @binding(3) var<storage, read> entries: array<Entry>;
@group(0) @binding(4) var<storage, read> tensor_scalars: array<u32>;
@group(0) @binding(5) var<uniform> parameters: LoadParameters;

fn value_of(at: u32) -> f32 {
    if parameters.kind < 3u {
        let half = (stored[at / 2u] >> (at % 2u * 16u)) & 0xffffu;
        return select(from_float16(half), from_bfloat16(half), parameters.kind == 1u);
    }
    let code = (stored[at / 4u] >> (at % 4u * 8u)) & 0xffu;
    let most = largest[at / 256u];
    if parameters.kind == 3u {
        return from_dynamic8(code, most);
    }
    return from_dynamic8_unsigned(code, most);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let entry = entries[workgroup.y];
    let row = entry.tensor * parameters.row_words;
    if tensor_scalars[row] != 1u || tensor_scalars[row + parameters.gate_word] == 0u {
        return;
    }
    for (var element = workgroup.x * 256u + lane; element < parameters.size; element += grid.x * 256u) {
        loaded[entry.loaded + element] = value_of(entry.stored + element);
    }
}
