// Copies the elements of (outer, length, inner) that indices name along the middle axis: the result is (outer, count,
// inner). The indices have a stride along each of its axes, 0 where they are the same. Elements of all types are copied
// as words.
struct GatherParameters {
    size: u32,
    count: u32,
    inner: u32,
    length: u32,
    outer_stride: u32,
    entry_stride: u32,
    inner_stride: u32,
    wraps: u32, // negative indices count from the end
    missing: u32, // where an index names nothing
}

@group(0) @binding(0) var<storage, read> values: array<u32>;
@group(0) @binding(1) var<storage, read> indices: array<i32>;
@group(0) @binding(2) var<storage, read_write> result: array<u32>;
@group(0) @binding(3) var<uniform> parameters: GatherParameters;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let at = (workgroup.x + workgroup.y * grid.x) * 256u + lane;
    if at >= parameters.size {
        return;
    }
    let column = at % parameters.inner;
    let row = at / parameters.inner;
    let entry = row % parameters.count;
    let outer = row / parameters.count;
    let index = indices[outer * parameters.outer_stride + entry * parameters.entry_stride
        + column * parameters.inner_stride];
    var place = bitcast<u32>(index); // a negative one is larger than any length
    if index < 0 && parameters.wraps != 0u {
        place += parameters.length;
    }
    var value = parameters.missing;
    if place < parameters.length {
        value = values[(outer * parameters.length + place) * parameters.inner + column];
    }
    result[at] = value;
}
