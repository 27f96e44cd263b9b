// The Gaussian error linear unit with the tangent's approximation (Hendrycks and Gimpel 2016, arXiv:1606.08415):
// x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x³), where (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)).
import package::lib::math::precise_exp;

const TWICE_ROOT: f32 = 1.5957691216; // 2 sqrt(2 / pi)
const CUBIC: f32 = 0.044715;

struct Gate { here: f32, mirrored: f32 }

fn gate(x: f32) -> Gate {
    let twice = TWICE_ROOT * x * (1.0 + CUBIC * x * x);
    let e = precise_exp(-abs(twice));
    return Gate(select(1.0, e, twice < 0.0) / (1.0 + e), select(e, 1.0, twice < 0.0) / (1.0 + e));
}

fn gelu_tanh(x: f32) -> f32 {
    return x * gate(x).here;
}

fn gelu_tanh_grad(g: f32, x: f32) -> f32 {
    let open = gate(x);
    let slope = TWICE_ROOT * (1.0 + 3.0 * CUBIC * x * x);
    return g * (open.here * (1.0 + x * open.mirrored * slope));
}
