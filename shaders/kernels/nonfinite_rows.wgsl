// Sets found_inf[0] if the sum of a row is NaN or infinite.
struct NonfiniteRowsParameters { count: u32, rows: u32, length: u32 }

@group(0) @binding(0) var<storage, read> sorted: array<u32>;
@group(0) @binding(1) var<storage, read> sums: array<u32>;
@group(0) @binding(2) var<storage, read_write> found_inf: array<atomic<u32>>;
@group(0) @binding(3) var<uniform> parameters: NonfiniteRowsParameters;

const EXPONENT: u32 = 0x7f800000u;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let at = (workgroup.x + workgroup.y * grid.x) * 256u + lane;
    let entry = at / parameters.length;
    if entry >= parameters.count {
        return;
    }
    let row = sorted[entry];
    let is_head = entry == 0u || sorted[max(entry, 1u) - 1u] != row;
    if row < parameters.rows && is_head && (sums[at] & EXPONENT) == EXPONENT {
        atomicStore(&found_inf[0], 1u);
    }
}
