// Counts the invocations whose neighbours in a quad are not those in the workgroup, as lib/quads.wgsl takes them to be:
// WGSL leaves open how invocations of a workgroup are numbered in their subgroup.
import package::lib::quads::INVOCATIONS;

@group(0) @binding(0) var<storage, read_write> differences: array<atomic<u32>>;

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(local_invocation_index) lane: u32) {
    let across = quadSwapX(lane);
    let down = quadSwapY(lane);
    let diagonal = quadSwapDiagonal(lane);
    if across != (lane ^ 1u) || down != (lane ^ 2u) || diagonal != (lane ^ 3u) {
        atomicAdd(&differences[0], 1u);
    }
}
