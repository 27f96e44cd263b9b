// Writes an array into a slice of a larger one, whose other elements become `fill`: along each of four axes `count`
// elements from `start` on, `step` apart. Elements of all types are copied as words.

// Software adapters spend half of the time on divisions, and skip no branch: so the axes and steps in use are constants.
override AXES: u32 = 4u; // axes in use, counted from the last; the others have length 1
override STEPS: bool = true; // some step is not 1
override ELEMENTS: u32 = 1u; // adjacent elements of an invocation; only the first divides to find its positions
struct PlaceParameters {
    size: u32,
    size1: u32,
    size2: u32,
    size3: u32,
    start0: u32,
    start1: u32,
    start2: u32,
    start3: u32,
    step0: u32,
    step1: u32,
    step2: u32,
    step3: u32,
    count0: u32,
    count1: u32,
    count2: u32,
    count3: u32,
    stride0: u32,
    stride1: u32,
    stride2: u32,
    stride3: u32,
    first: u32, // element of `part`
    fill: u32,
}

@group(0) @binding(0) var<storage, read> part: array<u32>;
@group(0) @binding(1) var<storage, read_write> whole: array<u32>;
@group(0) @binding(2) var<uniform> parameters: PlaceParameters;

const NOWHERE: u32 = 0xffffffffu;

// The part's element at a position of an axis; NOWHERE if it has none there.
fn from_part(position: u32, start: u32, step: u32, count: u32) -> u32 {
    let distance = position - start; // before the start: a number above any count
    if STEPS {
        let element = distance / step;
        return select(NOWHERE, element, element * step == distance && element < count && position >= start);
    }
    return select(NOWHERE, distance, distance < count);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let begin = ((workgroup.x + workgroup.y * grid.x) * 256u + lane) * ELEMENTS;
    if begin >= parameters.size {
        return;
    }
    var at0 = 0u;
    var at1 = 0u;
    var at2 = 0u;
    var at3 = begin;
    if AXES > 1u {
        at2 = begin / parameters.size3;
        at3 = begin - at2 * parameters.size3;
    }
    if AXES > 2u {
        at1 = at2 / parameters.size2;
        at2 -= at1 * parameters.size2;
    }
    if AXES > 3u {
        at0 = at1 / parameters.size1;
        at1 -= at0 * parameters.size1;
    }
    for (var element = 0u; element < ELEMENTS; element++) {
        let i0 = from_part(at0, parameters.start0, parameters.step0, parameters.count0);
        let i1 = from_part(at1, parameters.start1, parameters.step1, parameters.count1);
        let i2 = from_part(at2, parameters.start2, parameters.step2, parameters.count2);
        let i3 = from_part(at3, parameters.start3, parameters.step3, parameters.count3);
        var value = parameters.fill;
        if i0 != NOWHERE && i1 != NOWHERE && i2 != NOWHERE && i3 != NOWHERE {
            value = part[parameters.first + i0 * parameters.stride0 + i1 * parameters.stride1 + i2 * parameters.stride2
                + i3 * parameters.stride3];
        }
        if begin + element < parameters.size {
            whole[begin + element] = value;
        }
        at3++;
        if AXES > 1u && at3 == parameters.size3 {
            at3 = 0u;
            at2++;
        }
        if AXES > 2u && at2 == parameters.size2 {
            at2 = 0u;
            at1++;
        }
        if AXES > 3u && at1 == parameters.size1 {
            at1 = 0u;
            at0++;
        }
    }
}
