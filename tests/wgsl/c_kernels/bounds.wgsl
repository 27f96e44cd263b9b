// Indices out of bounds mean the last element, and memory that nobody has stored is zero.
@group(0) @binding(0) var<storage, read> values: array<i32>;
@group(0) @binding(1) var<storage, read_write> results: array<i32>;

var<workgroup> zeros: array<vec3<f32>, 9>;
var<workgroup> flags: array<bool, 7>;
var<workgroup> counter: atomic<i32>;
var<private> own: array<i32, 4>;

fn component(x: vec4<i32>, at: i32) -> i32 { return x[at]; }

@compute @workgroup_size(7)
fn main(@builtin(local_invocation_index) lane: u32) {
    let before = zeros[lane].y + f32(flags[6u - lane]) + f32(own[3]);
    let first = atomicLoad(&counter);
    workgroupBarrier();
    let far = 4000000000u + lane;
    let negative = -1 - i32(lane);
    own[negative] = 11;
    var vector = vec4<i32>(1, 2, 3, 4);
    vector[far] += 5;
    zeros[far] = vec3<f32>(7.0);
    atomicAdd(&counter, 1);
    workgroupBarrier();
    let at = lane * 8u;
    results[at] = bitcast<i32>(before) + first;
    results[at + 1u] = values[far] + values[negative] + values[arrayLength(&values)];
    results[at + 2u] = own[3] + own[1] + own[4u + lane];
    results[at + 3u] = vector.w + component(vector, negative) + array<i32, 2>(6, 60)[far];
    results[at + 4u] = i32(zeros[8].x + zeros[far].z);
    results[at + 5u] = atomicLoad(&counter);
    results[far] = 99;
}
