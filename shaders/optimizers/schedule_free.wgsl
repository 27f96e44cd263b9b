// Schedule-Free SGD and AdamW (Defazio et al. 2024, arXiv:2405.15682, equations 2-4 and algorithm 1), with the warm-up
// and the weights of the authors' release. While training, `param` is y; the average x follows.
import package::lib::math::{expm1, precise_pow};

override adaptive: bool = false;

const SMALLEST: f32 = 1e-30;

// beta1 is SGD's momentum.
struct Hyper {
    lr: f32,
    beta1: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    eps: f32,
    weight_decay: f32,
    warmup_steps: f32,
    r: f32,
    weight_lr_power: f32,
}

// weight_sum is in units of the latest weight, so that it counts exactly while they are equal. beta1 stays beside it
// for `train` and `eval`.
struct Scalars {
    step: f32,
    lr_max: f32,
    weight_sum: f32,
    beta1: f32,
    lr: f32,
    correction2: f32,
}

struct State { z: f32, exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

// A step's weight is step^r lr_max^weight_lr_power.
fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    let lr = h.lr * min(step / max(h.warmup_steps, 1.0), 1.0);
    let lr_max = max(s.lr_max, lr);
    let ratio = precise_pow(s.step / step, h.r) * precise_pow(s.lr_max / max(lr_max, SMALLEST), h.weight_lr_power);
    return Scalars(step, lr_max, s.weight_sum * ratio + 1.0, h.beta1, lr, -expm1(step * h.log_beta2));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let y = param;
    let z = select(state.z, y, s.step == 1.0);
    var g = grad;
    var exp_avg_sq = state.exp_avg_sq;
    if adaptive {
        exp_avg_sq = h.beta2 * exp_avg_sq + h.one_minus_beta2 * grad * grad;
        g = grad / (sqrt(exp_avg_sq / s.correction2) + h.eps);
    }
    g = g + h.weight_decay * y;
    // With x = y + (1 - 1 / beta1) (z - y), the next y between the next x and z.
    let c = 1.0 / s.weight_sum;
    let moved = y + (c * (z - y) - s.lr * (h.one_minus_beta1 + h.beta1 * c) * g);
    return Updated(moved, State(z - s.lr * g, exp_avg_sq));
}

// From y to x.
fn eval(param: f32, state: State, s: Scalars) -> Updated {
    return Updated(param + (1.0 - 1.0 / s.beta1) * (state.z - param), state);
}

// From x to y.
fn train(param: f32, state: State, s: Scalars) -> Updated {
    return Updated(param + (1.0 - s.beta1) * (state.z - param), state);
}
