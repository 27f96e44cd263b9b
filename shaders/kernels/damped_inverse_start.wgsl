// Factored Tikhonov damping (Martens & Grosse 2015, arXiv:1503.05671, section 6.3), and the start of Newton's iteration
// X = X (2 I - D X) for the inverse of D = S + ridge pi I, for each matrix of a table. S is one of the two factors of a
// Fisher matrix, and pi² the mean of its diagonal divided by that of the other one, or 1 if either is 0. The ridge is at
// least 1e-6 ‖S‖ in Frobenius' norm. `start` is the iteration's first result from X = I / ‖D‖. One workgroup computes one
// matrix.
import package::lib::workgroup::total;

struct InverseParameters { size: u32, other_size: u32, row_words: u32, gate_word: u32, ridge_word: u32 }

// The number of a tensor, and the first elements of S, of the other factor, and of both results.
struct Entry { tensor: u32, factor: u32, other: u32, result: u32 }

@group(0) @binding(0) var<storage, read> factors: array<f32>;
@group(0) @binding(1) var<storage, read> others: array<f32>;
@group(0) @binding(2) var<storage, read_write> damped: array<f32>;
@group(0) @binding(3) var<storage, read_write> start: array<f32>;
@group(0) @binding(4) var<storage, read> entries: array<Entry>;
@group(0) @binding(5) var<storage, read> tensor_scalars: array<u32>;
@group(0) @binding(6) var<uniform> parameters: InverseParameters;

const WORKGROUP: u32 = 256u;
const LEAST_RIDGE: f32 = 1e-6;

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
    let row = entry.tensor * parameters.row_words;
    if tensor_scalars[row] != 1u || tensor_scalars[row + parameters.gate_word] == 0u {
        return;
    }
    let size = parameters.size;
    let other_size = parameters.other_size;
    var trace = 0.0;
    for (var at = lane; at < size; at += WORKGROUP) {
        trace += factors[entry.factor + at * size + at];
    }
    trace = total(trace, lane, WORKGROUP);
    var other_trace = 0.0;
    for (var at = lane; at < other_size; at += WORKGROUP) {
        other_trace += others[entry.other + at * other_size + at];
    }
    other_trace = total(other_trace, lane, WORKGROUP);
    // No element is larger than the trace; squares of what is large or small would leave float32.
    let scale = select(1.0, trace, trace > 0.0);
    var squares = 0.0;
    for (var at = lane; at < size * size; at += WORKGROUP) {
        let value = factors[entry.factor + at] / scale;
        squares += value * value;
    }
    let norm_of_factor = scale * sqrt(total(squares, lane, WORKGROUP));
    let has_pi = trace > 0.0 && other_trace > 0.0;
    let pi = select(1.0, sqrt(trace / f32(size)) / sqrt(other_trace / f32(other_size)), has_pi);
    let ridge = max(pi * bitcast<f32>(tensor_scalars[row + parameters.ridge_word]), LEAST_RIDGE * norm_of_factor);
    let norm = norm_of_factor + ridge * sqrt(f32(size)); // at least that of the sum
    let z = select(0.0, 1.0 / norm, norm > 0.0);
    for (var at = lane; at < size * size; at += WORKGROUP) {
        let is_diagonal = at / size == at % size;
        let value = factors[entry.factor + at] + select(0.0, ridge, is_diagonal);
        damped[entry.result + at] = value;
        start[entry.result + at] = select(0.0, 2.0 * z, is_diagonal) - z * (z * value);
    }
}
