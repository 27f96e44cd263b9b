// The eigenvectors of symmetric positive semidefinite matrices, by one-sided Jacobi rotations (Hestenes 1958,
// https://doi.org/10.1137/0106005): a sweep turns each pair of columns of A V until they are orthogonal. A dispatch is
// one sweep; the last one writes the eigenvectors into the columns of Q, that of the largest eigenvalue first. One
// workgroup computes one matrix.
import package::lib::workgroup::{largest};

struct EigenvectorsParameters { size: u32, is_first: u32, is_last: u32, row_words: u32, gate_word: u32 }

// A matrix: the number of its tensor, and the first elements of A, of `work` and `vectors`, and of Q.
struct Entry { tensor: u32, matrix: u32, work: u32, q: u32 }

@group(0) @binding(0) var<storage, read> matrices: array<f32>;
@group(0) @binding(1) var<storage, read_write> work: array<f32>; // A V by columns
@group(0) @binding(2) var<storage, read_write> vectors: array<f32>; // V by columns
@group(0) @binding(3) var<storage, read_write> q: array<f32>;
@group(0) @binding(4) var<storage, read> entries: array<Entry>;
@group(0) @binding(5) var<storage, read> tensor_scalars: array<u32>;
@group(0) @binding(6) var<uniform> parameters: EigenvectorsParameters;

const WORKGROUP: u32 = 256u;
// So many invocations share a pair of columns.
const GROUP_SIZE: u32 = 8u;
const GROUPS: u32 = 32u;
// Columns whose cosine is less are orthogonal.
const NEGLIGIBLE: f32 = 1e-7;

var<workgroup> dots_of_lanes: array<vec3<f32>, 256>;

// The three dot products of a pair of columns, of which each invocation of the group has a part.
fn dots_of_group(dots: vec3<f32>, lane: u32) -> vec3<f32> {
    dots_of_lanes[lane] = dots;
    workgroupBarrier();
    let first = lane / GROUP_SIZE * GROUP_SIZE;
    var sum = vec3<f32>(0.0);
    for (var other = 0u; other < GROUP_SIZE; other++) {
        sum += dots_of_lanes[first + other];
    }
    workgroupBarrier();
    return sum;
}

// Never more than there is. That it is not a plain constant matters: llvmpipe puts those into the code of a loop, and
// compiled this one anew for every dispatch.
fn matrix_size() -> u32 {
    return min(parameters.size, arrayLength(&matrices));
}

// A = (matrix, scaled so that squares stay in float32), V = I.
fn load(entry: Entry, lane: u32) {
    let size = matrix_size();
    var magnitude = 0.0;
    for (var at = lane; at < size * size; at += WORKGROUP) {
        magnitude = max(magnitude, abs(matrices[entry.matrix + at]));
    }
    magnitude = largest(magnitude, lane, WORKGROUP);
    let scale = select(1.0, 1.0 / magnitude, magnitude > 0.0);
    for (var at = lane; at < size * size; at += WORKGROUP) {
        work[entry.work + at] = matrices[entry.matrix + at] * scale;
        vectors[entry.work + at] = select(0.0, 1.0, at / size == at % size);
    }
    storageBarrier();
    workgroupBarrier();
}

// Each pair once: in a round, every column meets another one, as in a tournament.
fn sweep(entry: Entry, lane: u32) {
    let size = matrix_size();
    let players = size + size % 2u;
    let member = lane % GROUP_SIZE;
    for (var round = 0u; round + 1u < players; round++) {
        for (var start = 0u; start < players / 2u; start += GROUPS) {
            let pair = start + lane / GROUP_SIZE;
            var one = (round + pair) % (players - 1u);
            let other = (round + players - 1u - pair) % (players - 1u);
            if pair == 0u {
                one = players - 1u;
            }
            let is_pair = pair < players / 2u && one < size && other < size;
            let a = entry.work + one * size;
            let b = entry.work + other * size;
            var dots = vec3<f32>(0.0);
            if is_pair {
                for (var i = member; i < size; i += GROUP_SIZE) {
                    dots += vec3<f32>(work[a + i] * work[a + i], work[b + i] * work[b + i], work[a + i] * work[b + i]);
                }
            }
            dots = dots_of_group(dots, lane);
            if is_pair && abs(dots.z) > NEGLIGIBLE * sqrt(dots.x) * sqrt(dots.y) {
                let cotangent = (dots.y - dots.x) / (2.0 * dots.z); // of twice the angle
                let magnitude = 1.0 / (abs(cotangent) + sqrt(1.0 + cotangent * cotangent));
                let tangent = select(-magnitude, magnitude, cotangent >= 0.0);
                let cosine = 1.0 / sqrt(1.0 + tangent * tangent);
                let sine = cosine * tangent;
                for (var i = member; i < size; i += GROUP_SIZE) {
                    let w = vec2<f32>(work[a + i], work[b + i]);
                    work[a + i] = cosine * w.x - sine * w.y;
                    work[b + i] = sine * w.x + cosine * w.y;
                    let v = vec2<f32>(vectors[a + i], vectors[b + i]);
                    vectors[a + i] = cosine * v.x - sine * v.y;
                    vectors[b + i] = sine * v.x + cosine * v.y;
                }
            }
        }
        storageBarrier();
        workgroupBarrier();
    }
}

// Each eigenvector to its place by the square of its eigenvalue, which is that of the column's length.
fn store(entry: Entry, lane: u32) {
    let size = matrix_size();
    for (var column = lane; column < size; column += WORKGROUP) {
        var square = 0.0;
        for (var i = 0u; i < size; i++) {
            let value = work[entry.work + column * size + i];
            square += value * value;
        }
        work[entry.work + column * size] = square;
    }
    storageBarrier();
    workgroupBarrier();
    for (var column = lane; column < size; column += WORKGROUP) {
        let square = work[entry.work + column * size];
        var place = 0u;
        for (var other = 0u; other < size; other++) {
            let its_square = work[entry.work + other * size];
            if its_square > square || (its_square == square && other < column) {
                place++;
            }
        }
        // Rotations that are rounded do not keep the length.
        var length_sq = 0.0;
        for (var i = 0u; i < size; i++) {
            let value = vectors[entry.work + column * size + i];
            length_sq += value * value;
        }
        let inverse_length = 1.0 / sqrt(length_sq);
        for (var i = 0u; i < size; i++) {
            q[entry.q + i * size + place] = vectors[entry.work + column * size + i] * inverse_length;
        }
    }
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = workgroup.x + workgroup.y * grid.x;
    if number >= arrayLength(&entries) {
        return;
    }
    let entry = entries[number];
    let scalars = entry.tensor * parameters.row_words;
    if tensor_scalars[scalars] != 1u || tensor_scalars[scalars + parameters.gate_word] == 0u {
        return;
    }
    if parameters.is_first != 0u {
        load(entry, lane);
    }
    sweep(entry, lane);
    if parameters.is_last != 0u {
        store(entry, lane);
    }
}
