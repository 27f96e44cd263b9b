// Merges what `sort_rows` sorted in blocks: an invocation finds the place of its pair by a binary search in every other
// block. Equal rows stay in the order of their positions, since those of a block before come first.
struct MergeParameters { count: u32, block: u32 }

@group(0) @binding(0) var<storage, read> rows_in_blocks: array<u32>;
@group(0) @binding(1) var<storage, read> order_in_blocks: array<u32>;
@group(0) @binding(2) var<storage, read_write> sorted: array<u32>;
@group(0) @binding(3) var<storage, read_write> order: array<u32>;
@group(0) @binding(4) var<uniform> parameters: MergeParameters;

// How many in a sorted part are less than `bound`.
fn count_below(start: u32, size: u32, bound: u32) -> u32 {
    var low = start;
    var left = size;
    while left > 0u {
        let half = left / 2u;
        let is_below = rows_in_blocks[low + half] < bound;
        low = select(low, low + half + 1u, is_below);
        left = select(half, left - half - 1u, is_below);
    }
    return low - start;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let at = (workgroup.x + workgroup.y * grid.x) * 256u + lane;
    if at >= parameters.count {
        return;
    }
    let row = rows_in_blocks[at];
    let own = at / parameters.block * parameters.block;
    var place = at - own;
    for (var start = 0u; start < parameters.count; start += parameters.block) {
        if start != own {
            let size = min(parameters.block, parameters.count - start);
            place += count_below(start, size, select(row, row + 1u, start < own));
        }
    }
    sorted[place] = row;
    order[place] = order_in_blocks[at];
}
