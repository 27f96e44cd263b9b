// The start of a coupled Newton iteration for the inverse root of order p = 2 or 4 of A + ridge I, for each matrix of a
// table: M = z (A + ridge I) and H = z^(1/p) I with z = (1 + p) / (2 ‖A + ridge I‖), so that the eigenvalues of M lie
// between 0 and (1 + p) / 2 (Guo & Higham 2006, https://doi.org/10.1137/050643374). The ridge is at least 1e-6 ‖A‖, in
// Frobenius' norm. One workgroup computes one matrix; of zeros, M and H are zeros.
import package::lib::workgroup::{largest, total};

struct RootParameters { size: u32, order: u32, row_words: u32, gate_word: u32, ridge_word: u32 }

// A matrix: the number of its tensor, and the first elements of A and of both M and H.
struct Entry { tensor: u32, statistic: u32, result: u32 }

@group(0) @binding(0) var<storage, read> statistics: array<f32>;
@group(0) @binding(1) var<storage, read_write> m: array<f32>;
@group(0) @binding(2) var<storage, read_write> h: array<f32>;
@group(0) @binding(3) var<storage, read> entries: array<Entry>;
@group(0) @binding(4) var<storage, read> tensor_scalars: array<u32>;
@group(0) @binding(5) var<uniform> parameters: RootParameters;

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
    // Squares of what is large or small would leave float32.
    var magnitude = 0.0;
    for (var at = lane; at < size * size; at += WORKGROUP) {
        magnitude = max(magnitude, abs(statistics[entry.statistic + at]));
    }
    magnitude = largest(magnitude, lane, WORKGROUP);
    let scale = select(1.0, magnitude, magnitude > 0.0);
    var squares = 0.0;
    for (var at = lane; at < size * size; at += WORKGROUP) {
        let value = statistics[entry.statistic + at] / scale;
        squares += value * value;
    }
    let norm_of_statistic = scale * sqrt(total(squares, lane, WORKGROUP));
    let ridge = max(bitcast<f32>(tensor_scalars[row + parameters.ridge_word]), LEAST_RIDGE * norm_of_statistic);
    let norm = norm_of_statistic + ridge * sqrt(f32(size)); // at least that of the sum
    let order = f32(parameters.order);
    let z = select(0.0, (1.0 + order) / (2.0 * norm), norm > 0.0);
    let root = select(sqrt(sqrt(z)), sqrt(z), parameters.order == 2u);
    for (var at = lane; at < size * size; at += WORKGROUP) {
        let is_diagonal = at / size == at % size;
        m[entry.result + at] = z * (statistics[entry.statistic + at] + select(0.0, ridge, is_diagonal));
        h[entry.result + at] = select(0.0, root, is_diagonal);
    }
}
