// The orthogonal factor Q of S = Q R for each matrix of a table, by Householder reflections; R has no negative element
// on its diagonal. S and Q have `count` columns of `size` elements, at least as many. Q is orthogonal to float32's
// precision whatever the rank of S. `work` holds S by columns, and is overwritten. One workgroup computes one matrix.
import package::lib::workgroup::{largest, total};

struct OrthogonaliseParameters { size: u32, count: u32, row_words: u32, gate_word: u32 }

// A matrix: the number of its tensor, and the first elements of `work` and `columns`, and of Q.
struct Entry { tensor: u32, work: u32, q: u32 }

@group(0) @binding(0) var<storage, read_write> work: array<f32>;
@group(0) @binding(1) var<storage, read_write> columns: array<f32>;
@group(0) @binding(2) var<storage, read_write> q: array<f32>;
@group(0) @binding(3) var<storage, read> entries: array<Entry>;
@group(0) @binding(4) var<storage, read> tensor_scalars: array<u32>;
@group(0) @binding(5) var<uniform> parameters: OrthogonaliseParameters;

// Normal numbers begin here: the reciprocal of a smaller one may be infinite.
const SMALLEST: f32 = 1.1754944e-38;
const WORKGROUP: u32 = 256u;
// So many invocations share a column that is reflected.
const GROUP_SIZE: u32 = 8u;
const GROUPS: u32 = 32u;

var<workgroup> of_groups: array<f32, 256>;

fn total_of_group(value: f32, lane: u32) -> f32 {
    of_groups[lane] = value;
    workgroupBarrier();
    let first = lane / GROUP_SIZE * GROUP_SIZE;
    var sum = 0.0;
    for (var other = 0u; other < GROUP_SIZE; other++) {
        sum += of_groups[first + other];
    }
    workgroupBarrier();
    return sum;
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
    let size = parameters.size;
    let count = parameters.count;
    let member = lane % GROUP_SIZE;

    // Squares of what is large or small would leave float32.
    var magnitude = 0.0;
    for (var at = lane; at < size * count; at += WORKGROUP) {
        magnitude = max(magnitude, abs(work[entry.work + at]));
    }
    magnitude = largest(magnitude, lane, WORKGROUP);
    let scale = select(0.0, 1.0 / magnitude, magnitude >= SMALLEST);
    for (var at = lane; at < size * count; at += WORKGROUP) {
        work[entry.work + at] = work[entry.work + at] * scale;
        columns[entry.work + at] = select(0.0, 1.0, at / size == at % size);
    }
    storageBarrier();
    workgroupBarrier();

    // Reflect column after column onto the diagonal; what remains of a column is the vector of its reflection.
    for (var j = 0u; j < count; j++) {
        let column = entry.work + j * size;
        let diagonal = work[column + j];
        var squares = 0.0;
        for (var i = j + lane; i < size; i += WORKGROUP) {
            squares += work[column + i] * work[column + i];
        }
        let norm = sqrt(total(squares, lane, WORKGROUP));
        if lane == 0u {
            work[column + j] = diagonal + select(-norm, norm, diagonal >= 0.0);
        }
        storageBarrier();
        workgroupBarrier();
        let half_square = norm * (norm + abs(diagonal)); // of the vector's length
        let factor = select(0.0, 1.0 / half_square, half_square >= SMALLEST);
        for (var start = j + 1u; start < count; start += GROUPS) {
            let k = start + lane / GROUP_SIZE;
            var dot = 0.0;
            if k < count {
                for (var i = j + member; i < size; i += GROUP_SIZE) {
                    dot += work[column + i] * work[entry.work + k * size + i];
                }
            }
            dot = total_of_group(dot, lane) * factor;
            if k < count {
                for (var i = j + member; i < size; i += GROUP_SIZE) {
                    let at = entry.work + k * size + i;
                    work[at] = work[at] - dot * work[column + i];
                }
            }
        }
        storageBarrier();
        workgroupBarrier();
    }

    // The reflections of the unit vectors, the last one first.
    for (var step = 0u; step < count; step++) {
        let j = count - 1u - step;
        let column = entry.work + j * size;
        var squares = 0.0;
        for (var i = j + lane; i < size; i += WORKGROUP) {
            squares += work[column + i] * work[column + i];
        }
        let square = total(squares, lane, WORKGROUP);
        let factor = select(0.0, 2.0 / square, square >= SMALLEST);
        for (var start = j; start < count; start += GROUPS) {
            let k = start + lane / GROUP_SIZE;
            var dot = 0.0;
            if k < count {
                for (var i = j + member; i < size; i += GROUP_SIZE) {
                    dot += work[column + i] * columns[entry.work + k * size + i];
                }
            }
            dot = total_of_group(dot, lane) * factor;
            if k < count {
                for (var i = j + member; i < size; i += GROUP_SIZE) {
                    let at = entry.work + k * size + i;
                    columns[at] = columns[at] - dot * work[column + i];
                }
            }
        }
        storageBarrier();
        workgroupBarrier();
    }
    for (var at = lane; at < size * count; at += WORKGROUP) {
        let j = at % count;
        let is_turned = work[entry.work + j * size + j] > 0.0;
        let value = columns[entry.work + j * size + at / count];
        q[entry.q + at] = select(value, -value, is_turned);
    }
}
