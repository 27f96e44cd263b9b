// Convolutions with taps of 3x3 at a stride of 1, as products of filters and pixels, all f32. For GPUs. A workgroup
// computes 64 adjacent windows of an image, a region of REGION_WIDTH, for TILE_ROWS filters. It stages all pixels under
// these windows, with zeros beyond the edges: a band of rows, of four channels at a time, from which all nine taps are
// read. So a pixel is read from the image twice on average, not nine times, and an invocation, which has four adjacent
// windows, reads two vectors of a row of the band for three taps. Other convolutions are in convolution.wgsl.
import package::lib::operands::{a, a_vectors, b};

struct BandParameters {
    rows: u32, // filters of a group
    channels: u32, // of a group
    height: u32, // of an image
    width: u32,
    top: u32, // padding before it
    left: u32,
    out_height: u32, // windows along an axis
    out_width: u32,
    a_group: u32, // elements from one group to the next
    b_group: u32,
    b_image: u32, // and from one image to the next
    c_image: u32,
}

// 0 and 1 are those of operands.wgsl.
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> parameters: BandParameters;

override TILE_ROWS: u32 = 64u;
override REGION_WIDTH: u32 = 8u; // a multiple of four that divides 64
override BY_VECTORS: bool = false; // filters begin at multiples of four elements
// The first tap of a filter is on the last pixel of a window, as in the gradient of the images.
override IS_FLIPPED: bool = false;

const OWN_ROWS: u32 = 4u; // filters of an invocation
const CHANNELS: u32 = 4u; // that are staged at a time
const VECTORS: u32 = 9u; // of the taps of these channels in a filter
const PITCH: u32 = VECTORS + 1u; // against conflicts of banks where neighbouring invocations store
const QUADS_ACROSS: u32 = REGION_WIDTH / 4u; // of windows that an invocation has
const REGION_HEIGHT: u32 = 64u / REGION_WIDTH;
const BAND_WIDTH: u32 = QUADS_ACROSS + 1u; // vectors
const BAND_HEIGHT: u32 = REGION_HEIGHT + 2u;
const BAND: u32 = CHANNELS * BAND_HEIGHT * BAND_WIDTH;
const INVOCATIONS: u32 = 16u * (TILE_ROWS / OWN_ROWS);
const FILTER_VECTORS: u32 = (TILE_ROWS * VECTORS + INVOCATIONS - 1u) / INVOCATIONS; // that an invocation stages
const OWN_VECTORS: u32 = (BAND + INVOCATIONS - 1u) / INVOCATIONS;

var<workgroup> filters: array<vec4<f32>, TILE_ROWS * PITCH>;
var<workgroup> band: array<vec4<f32>, BAND>;

// What follows a convolution may be fused with it here.
fn stored(value: f32, at: u32) {
    c[at] = value;
}

// Beyond the last filter the last is staged again, for sums that are not stored.
fn stage_filters(number: u32, first_row: u32, channel: u32, start: u32) {
    let inner = parameters.channels * 9u;
    let first = channel * 9u + number % VECTORS * 4u;
    let at = start + min(first_row + number / VECTORS, parameters.rows - 1u) * inner + first;
    var vector = vec4<f32>(0.0); // beyond the last channel
    if BY_VECTORS {
        if first < inner {
            vector = a_vectors[at / 4u];
        }
    } else {
        @unroll for (var i = 0u; i < 4u; i++) {
            if first + i < inner {
                vector[i] = a[at + i];
            }
        }
    }
    filters[number / VECTORS * PITCH + number % VECTORS] = vector;
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let regions_across = (parameters.out_width + REGION_WIDTH - 1u) / REGION_WIDTH;
    let regions = (parameters.out_height + REGION_HEIGHT - 1u) / REGION_HEIGHT * regions_across;
    let image = workgroup.x / regions;
    let first_y = workgroup.x % regions / regions_across * REGION_HEIGHT;
    let first_x = workgroup.x % regions_across * REGION_WIDTH;
    let tiles_down = (parameters.rows + TILE_ROWS - 1u) / TILE_ROWS;
    let group = workgroup.y / tiles_down;
    let first_row = workgroup.y % tiles_down * TILE_ROWS;
    let a_start = group * parameters.a_group;
    let pixels = parameters.height * parameters.width;

    // Offsets of the vectors of the first channels that this invocation stages; no column is inside if the row is
    // outside.
    var starts: array<u32, OWN_VECTORS>;
    var columns: array<u32, OWN_VECTORS>;
    var channels: array<u32, OWN_VECTORS>;
    @unroll for (var i = 0u; i < OWN_VECTORS; i++) {
        let number = lane + i * INVOCATIONS;
        let y = first_y + number / BAND_WIDTH % BAND_HEIGHT - parameters.top;
        let x = first_x + number % BAND_WIDTH * 4u - parameters.left;
        channels[i] = number / (BAND_WIDTH * BAND_HEIGHT);
        starts[i] = image * parameters.b_image + group * parameters.b_group + channels[i] * pixels + y * parameters.width
            + x;
        columns[i] = select(0x80000000u, x, y < parameters.height);
    }

    let own_row = lane / 16u * OWN_ROWS;
    let own_y = lane % 16u / QUADS_ACROSS;
    let own_x = lane % QUADS_ACROSS; // in vectors
    var sums: array<vec4<f32>, OWN_ROWS>;
    for (var channel = 0u; channel < parameters.channels; channel += CHANNELS) {
        @unroll for (var i = 0u; i < FILTER_VECTORS; i++) {
            let number = lane + i * INVOCATIONS;
            if number < TILE_ROWS * VECTORS {
                stage_filters(number, first_row, channel, a_start);
            }
        }
        @unroll for (var i = 0u; i < OWN_VECTORS; i++) {
            var vector = vec4<f32>(0.0);
            if channel + channels[i] < parameters.channels {
                @unroll for (var j = 0u; j < 4u; j++) {
                    if columns[i] + j < parameters.width {
                        vector[j] = b[starts[i] + channel * pixels + j];
                    }
                }
            }
            if lane + i * INVOCATIONS < BAND {
                band[lane + i * INVOCATIONS] = vector;
            }
        }
        workgroupBarrier();
        var low: vec4<f32>;
        var high: vec4<f32>;
        @unroll for (var v = 0u; v < VECTORS; v++) {
            var taps: array<vec4<f32>, OWN_ROWS>; // four of each filter
            @unroll for (var i = 0u; i < OWN_ROWS; i++) {
                taps[i] = filters[(own_row + i) * PITCH + v];
            }
            @unroll for (var d = 0u; d < 4u; d++) {
                if (4u * v + d) % 3u == 0u { // the first tap of a row
                    let row = own_y + select((4u * v + d) / 3u % 3u, 2u - (4u * v + d) / 3u % 3u, IS_FLIPPED);
                    let at = ((4u * v + d) / 9u * BAND_HEIGHT + row) * BAND_WIDTH + own_x;
                    low = band[at];
                    high = band[at + 1u];
                }
                let under = select(
                    select(
                        select(low, vec4<f32>(low.zw, high.xy), IS_FLIPPED),
                        vec4<f32>(low.yzw, high.x),
                        (4u * v + d) % 3u == 1u,
                    ),
                    select(vec4<f32>(low.zw, high.xy), low, IS_FLIPPED),
                    (4u * v + d) % 3u == 2u,
                );
                @unroll for (var i = 0u; i < OWN_ROWS; i++) {
                    sums[i] = fma(vec4<f32>(taps[i][d]), under, sums[i]);
                }
            }
        }
        workgroupBarrier();
    }
    let y = first_y + own_y;
    let first = image * parameters.c_image + y * parameters.out_width;
    @unroll for (var i = 0u; i < OWN_ROWS; i++) {
        @unroll for (var j = 0u; j < 4u; j++) {
            let row = first_row + own_row + i;
            let x = first_x + own_x * 4u + j;
            if row < parameters.rows && y < parameters.out_height && x < parameters.out_width {
                let plane = (group * parameters.rows + row) * parameters.out_height * parameters.out_width;
                stored(sums[i][j], first + plane + x);
            }
        }
    }
}
