// The sum and the maximum of a buffer, one partial result per workgroup.
import package::lib::math::is_finite;

override SIZE: u32 = 128u;
override skip_nonfinite: bool = false;

struct Partial { sum: f32, largest: f32, count: u32 }

@group(0) @binding(0) var<storage, read> values: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> partials: array<Partial>;

var<workgroup> sums: array<f32, SIZE>;
var<workgroup> peaks: array<f32, SIZE>;
var<workgroup> counts: array<u32, SIZE>;

const LOWEST = -3.4028234663852886e38;

fn use_value(x: f32) -> bool {
    if (skip_nonfinite) {
        return is_finite(x);
    }
    return true;
}

@compute @workgroup_size(SIZE)
fn reduce(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    var sum = 0.0;
    var peak: f32 = LOWEST;
    var count = 0u;
    for (var i = id.x; i < arrayLength(&values); i += groups.x * SIZE) {
        let four = values[i];
        for (var c = 0; c < 4; c++) {
            if (!use_value(four[c])) {
                continue;
            }
            sum += four[c];
            peak = max(peak, four[c]);
            count++;
        }
    }
    sums[lane] = sum;
    peaks[lane] = peak;
    counts[lane] = count;
    workgroupBarrier();
    var width = SIZE / 2;
    loop {
        if (lane < width) {
            sums[lane] += sums[lane + width];
            peaks[lane] = max(peaks[lane], peaks[lane + width]);
            counts[lane] = counts[lane] + counts[lane + width];
        }
        workgroupBarrier();
        continuing {
            width >>= 1u;
            break if width == 0u;
        }
    }
    if (lane == 0u) {
        partials[group.x] = Partial(sums[0], peaks[0], counts[0]);
    }
}
