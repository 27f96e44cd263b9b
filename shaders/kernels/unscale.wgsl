// Divides the gradients of an arena by the scale of the loss, in place, and notes where one is NaN or infinite
// (Micikevicius et al. 2018, arXiv:1710.03740).
struct Block { tensor: u32, size: u32 }
struct TensorEntry { group: u32, live: u32, first_block: u32, blocks: u32, size: u32 }

@group(0) @binding(0) var<storage, read_write> grads: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> blocks: array<Block>;
@group(0) @binding(2) var<storage, read> tensors: array<TensorEntry>;
@group(0) @binding(3) var<storage, read_write> scaler: array<atomic<u32>>; // the bits of scale, found_inf, growth_tracker
@group(0) @binding(4) var<storage, read_write> found_inf: array<atomic<u32>>;

const EXPONENT: u32 = 0x7f800000u;
const ONE: u32 = 0x3f800000u;

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
    let grad = grads[at];
    let bits = bitcast<vec4<u32>>(grad) & vec4<u32>(EXPONENT);
    if bits.x == EXPONENT || bits.y == EXPONENT || bits.z == EXPONENT || bits.w == EXPONENT {
        atomicStore(&found_inf[0], 1u);
        atomicStore(&scaler[1], ONE);
    }
    grads[at] = grad * (1.0 / bitcast<f32>(atomicLoad(&scaler[0])));
}
