// Schedules: an invocation for each hyper-parameter that follows one, in a row. Its value is what its layers make of
// its base, one after the other, each from its own count; a layer is pieces, of which the latest that has begun holds.
import package::lib::math::precise_log;
import package::schedules::cosine::cosine;
import package::schedules::exponential::exponential;
import package::schedules::noise::noise;
import package::schedules::parameters::Parameters;
import package::schedules::polynomial::polynomial;
import package::schedules::triangular::triangular;

// The kinds of pieces that there are: the others are not compiled.
override use_polynomial: bool = true;
override use_cosine: bool = true;
override use_exponential: bool = true;
override use_triangular: bool = true;
override use_noise: bool = true;

// The last three are places in `hyper`: of the value, of 1 - value and of its logarithm.
struct Row { base: f32, first_layer: u32, layers: u32, at: u32, one_minus_at: u32, log_at: u32 }
struct Layer { count: f32, scheduler: u32, first_piece: u32, pieces: u32 }
struct Piece { begin: f32, kind: u32, is_absolute: u32, p: Parameters }
struct ScheduleParameters { stepping: u32 } // a bit for each scheduler

@group(0) @binding(0) var<storage, read> rows: array<Row>;
@group(0) @binding(1) var<storage, read_write> layers: array<Layer>;
@group(0) @binding(2) var<storage, read> pieces: array<Piece>;
@group(0) @binding(3) var<storage, read_write> hyper: array<f32>;
@group(0) @binding(4) var<uniform> parameters: ScheduleParameters;

const NOWHERE: u32 = 0xffffffffu;

fn value(piece: Piece, count: f32, base: f32) -> f32 {
    var result = base;
    if use_polynomial && piece.kind == 0u {
        result = polynomial(count, base, piece.p);
    }
    if use_cosine && piece.kind == 1u {
        result = cosine(count, base, piece.p);
    }
    if use_exponential && piece.kind == 2u {
        result = exponential(count, base, piece.p);
    }
    if use_triangular && piece.kind == 3u {
        result = triangular(count, base, piece.p);
    }
    if use_noise && piece.kind == 4u {
        result = noise(count, base, piece.p);
    }
    return result;
}

fn holding(layer: Layer) -> u32 {
    var found = layer.first_piece;
    for (var at = layer.first_piece; at < layer.first_piece + layer.pieces; at++) {
        if pieces[at].begin <= layer.count {
            found = at;
        }
    }
    return found;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) invocation: vec3<u32>) {
    if invocation.x >= arrayLength(&rows) {
        return;
    }
    let row = rows[invocation.x];
    var result = row.base;
    var steps = false;
    for (var number = row.first_layer; number < row.first_layer + row.layers; number++) {
        if ((parameters.stepping >> layers[number].scheduler) & 1u) != 0u {
            layers[number].count += 1.0;
            steps = true;
        }
        let piece = pieces[holding(layers[number])];
        result = value(piece, layers[number].count - piece.begin, select(result, 1.0, piece.is_absolute != 0u));
    }
    if !steps {
        return;
    }
    if row.at != NOWHERE {
        hyper[row.at] = result;
    }
    if row.one_minus_at != NOWHERE {
        hyper[row.one_minus_at] = 1.0 - result;
    }
    if row.log_at != NOWHERE {
        hyper[row.log_at] = select(precise_log(result), -100.0, result <= 0.0);
    }
}
