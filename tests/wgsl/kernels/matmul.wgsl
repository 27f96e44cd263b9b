// c = alpha * a @ b + bias, tiled; an invocation computes a column of four elements.
const TILE = 16;
const PER_INVOCATION = TILE / 4;

alias Index = vec3<u32>;

struct Shape { rows: u32, inner: u32, columns: u32, alpha: f32 }

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> c: array<f32>;

var<workgroup> tile_a: array<array<f32, TILE>, TILE>;
var<workgroup> tile_b: array<f32, TILE * TILE>;

const_assert TILE % 4 == 0 && PER_INVOCATION == 4;

fn load_a(row: u32, column: u32) -> f32 {
    if row >= shape.rows || column >= shape.inner { return 0.0; }
    return a[row * shape.inner + column];
}

@compute @workgroup_size(TILE, PER_INVOCATION)
fn matmul(@builtin(workgroup_id) group: Index, @builtin(local_invocation_id) local: Index) {
    let column = group.x * TILE + local.x;
    let first = group.y * TILE + local.y * PER_INVOCATION;
    var acc: array<f32, PER_INVOCATION>;
    for (var start = 0u; start < shape.inner; start += TILE) {
        for (var i = 0u; i < PER_INVOCATION; i++) {
            let y = local.y * PER_INVOCATION + i;
            tile_a[y][local.x] = load_a(first + i, start + local.x);
            let is_inside = start + y < shape.inner && column < shape.columns;
            tile_b[y * TILE + local.x] = select(0.0, b[min((start + y) * shape.columns + column, arrayLength(&b) - 1)], is_inside);
        }
        workgroupBarrier();
        for (var k = 0u; k < TILE; k++) {
            let factor = tile_b[k * TILE + local.x];
            for (var i = 0u; i < PER_INVOCATION; i++) {
                acc[i] = fma(tile_a[local.y * PER_INVOCATION + i][k], factor, acc[i]);
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < PER_INVOCATION; i++) {
        if first + i < shape.rows && column < shape.columns {
            c[(first + i) * shape.columns + column] = shape.alpha * acc[i] + bias[column];
        }
    }
}
