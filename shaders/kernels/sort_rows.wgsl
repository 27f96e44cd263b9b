// Sorts pairs of a row and a position in blocks: by row, then by position. Batcher's bitonic network (1968), one workgroup
// to a block. What names no row comes last, as the row `rows`.
struct SortParameters { count: u32, rows: u32, block: u32 } // block: a power of two up to MOST

@group(0) @binding(0) var<storage, read> indices: array<i32>;
@group(0) @binding(1) var<storage, read_write> sorted: array<u32>;
@group(0) @binding(2) var<storage, read_write> order: array<u32>;
@group(0) @binding(3) var<uniform> parameters: SortParameters;

const WORKGROUP: u32 = 256u;
const MOST: u32 = 2048u;

var<workgroup> row_at: array<u32, 2048>;
var<workgroup> position_at: array<u32, 2048>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = parameters.block;
    let first = (workgroup.x + workgroup.y * grid.x) * block;
    for (var slot = lane; slot < block; slot += WORKGROUP) {
        let position = first + slot;
        var row = 0xffffffffu; // beyond the end: behind everything else
        if position < parameters.count {
            row = min(bitcast<u32>(indices[position]), parameters.rows); // negative ones are large
        }
        row_at[slot] = row;
        position_at[slot] = position;
    }
    workgroupBarrier();
    for (var size = 2u; size <= block; size *= 2u) {
        for (var apart = size / 2u; apart > 0u; apart /= 2u) {
            for (var pair = lane; pair < block / 2u; pair += WORKGROUP) {
                let low = 2u * pair - (pair & (apart - 1u));
                let high = low + apart;
                let low_row = row_at[low];
                let high_row = row_at[high];
                let low_position = position_at[low];
                let high_position = position_at[high];
                let is_behind = low_row > high_row || (low_row == high_row && low_position > high_position);
                if is_behind == ((low & size) == 0u) {
                    row_at[low] = high_row;
                    row_at[high] = low_row;
                    position_at[low] = high_position;
                    position_at[high] = low_position;
                }
            }
            workgroupBarrier();
        }
    }
    for (var slot = lane; slot < block; slot += WORKGROUP) {
        if first + slot < parameters.count {
            sorted[first + slot] = row_at[slot];
            order[first + slot] = position_at[slot];
        }
    }
}
