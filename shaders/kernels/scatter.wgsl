// Adds up entries (outer, count, inner) where their indices say along the middle axis of (outer, length, inner): the
// reverse of gather.wgsl. An invocation makes one element, and goes through the entries from `first` to `end` that may
// belong there, in order: so the sums are the same at every run. Indices that name nothing are left out.
struct ScatterParameters {
    size: u32,
    count: u32,
    inner: u32,
    length: u32,
    outer_stride: u32,
    entry_stride: u32,
    inner_stride: u32,
    first: u32,
    end: u32,
}

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read> indices: array<i32>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;
@group(0) @binding(3) var<uniform> parameters: ScatterParameters;

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
    let place = i32(row % parameters.length);
    let outer = row / parameters.length;
    let first_index = outer * parameters.outer_stride + column * parameters.inner_stride;
    let first_value = outer * parameters.count * parameters.inner + column;
    var sum = 0.0;
    if parameters.first > 0u {
        sum = sums[at];
    }
    for (var entry = parameters.first; entry < parameters.end; entry++) {
        if indices[first_index + entry * parameters.entry_stride] == place {
            sum += values[first_value + entry * parameters.inner];
        }
    }
    sums[at] = sum;
}
