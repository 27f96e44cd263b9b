// A sum by subgroups, with half-precision input.
enable f16;

@group(0) @binding(0) var<storage, read> values: array<f16>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

var<workgroup> partial: array<f32, 64>;

@compute @workgroup_size(64, 1, 1)
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) place: u32,
) {
    let x = f32(values[id.x] * 0.5h + h(1));
    let total = subgroupAdd(x) + subgroupShuffleXor(x, 1u) * f32(subgroupAny(x > 4.0));
    partial[lane / size] = subgroupBroadcast(total, 0);
    workgroupBarrier();
    if lane == 0u && place == 0u {
        var sum = 0.0;
        for (var i = 0u; i < 64 / size; i++) { sum += partial[i]; }
        sums[group.x] = sum;
    }
}

fn h(x: i32) -> f16 { return f16(x) / 3.0; }
