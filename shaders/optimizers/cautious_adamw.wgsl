// Cautious AdamW (Liang et al. 2024, arXiv:2411.16085, algorithm 1): only the elements move whose average agrees with
// the gradient. The mask is divided by its mean, of at least 0.001, as in the authors' release.
import package::lib::math::expm1;

const SMALLEST_MEAN: f32 = 1e-3;

struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    eps: f32,
    weight_decay: f32,
}

struct Scalars { step: f32, correction1: f32, correction2: f32, scale: f32 }

struct State { exp_avg: f32, exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

struct Measured { aligned: f32 }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    return Scalars(step, -expm1(step * h.log_beta1), -expm1(step * h.log_beta2), 0.0);
}

fn average(grad: f32, state: State, h: Hyper) -> f32 {
    return state.exp_avg + h.one_minus_beta1 * (grad - state.exp_avg);
}

// By the sign: the product of two small numbers may be 0.
fn is_aligned(exp_avg: f32, grad: f32) -> bool {
    return sign(exp_avg) * grad > 0.0;
}

fn measure(grad: f32, state: State, h: Hyper) -> Measured {
    return Measured(select(0.0, 1.0, is_aligned(average(grad, state, h), grad)));
}

fn settle(s: Scalars, measured: Measured, size: f32) -> Scalars {
    let scale = 1.0 / max(measured.aligned / size, SMALLEST_MEAN);
    return Scalars(s.step, s.correction1, s.correction2, scale);
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let exp_avg = average(grad, state, h);
    let exp_avg_sq = h.beta2 * state.exp_avg_sq + h.one_minus_beta2 * grad * grad;
    let u = exp_avg / s.correction1 / (sqrt(exp_avg_sq / s.correction2) + h.eps);
    let masked = select(0.0, s.scale * u, is_aligned(exp_avg, grad));
    return Updated(param - h.lr * (h.weight_decay * param + masked), State(exp_avg, exp_avg_sq));
}
