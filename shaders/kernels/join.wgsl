// Copies rows of `row` words to their place in longer rows of `whole_row` words: a part of arrays joined along an axis.
struct JoinParameters { size: u32, row: u32, whole_row: u32, first: u32 }

@group(0) @binding(0) var<storage, read> part: array<u32>;
@group(0) @binding(1) var<storage, read_write> whole: array<u32>;
@group(0) @binding(2) var<uniform> parameters: JoinParameters;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let at = (workgroup.x + workgroup.y * grid.x) * 256u + lane;
    if at < parameters.size {
        whole[at / parameters.row * parameters.whole_row + parameters.first + at % parameters.row] = part[at];
    }
}
