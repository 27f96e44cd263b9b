// Sets found_inf[0] if a gradient in an arena is NaN or infinite. Tensors without a gradient are not looked at.
struct Block { tensor: u32, size: u32 }
struct TensorEntry { group: u32, live: u32, first_block: u32, blocks: u32, size: u32 }

@group(0) @binding(0) var<storage, read> grads: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> blocks: array<Block>;
@group(0) @binding(2) var<storage, read> tensors: array<TensorEntry>;
@group(0) @binding(3) var<storage, read_write> found_inf: array<atomic<u32>>;

const EXPONENT: u32 = 0x7f800000u;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // An arena's block has 64 vectors of four gradients.
    let at = (workgroup.x + workgroup.y * grid.x) * 256u + lane;
    let block = at / 64u;
    if block >= arrayLength(&blocks) {
        return;
    }
    if (tensors[blocks[block].tensor].live & 1u) == 0u {
        return;
    }
    let bits = grads[at];
    let is_bad = (bits.x & EXPONENT) == EXPONENT || (bits.y & EXPONENT) == EXPONENT
        || (bits.z & EXPONENT) == EXPONENT || (bits.w & EXPONENT) == EXPONENT;
    if is_bad {
        atomicStore(&found_inf[0], 1u);
    }
}
