// MARS-AdamW (Yuan et al. 2024, arXiv:2411.10438, algorithm 2), approximate: the variance is reduced with the gradient
// of the step before, which the authors' release takes to be 0 at the first.
import package::lib::math::expm1;

override amsgrad: bool = false;

// gradient_scale is gamma beta1 / (1 - beta1).
struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    eps: f32,
    gradient_scale: f32,
    weight_decay: f32,
}

struct Scalars { step: f32, correction1: f32, correction2: f32, norm: f32 }

struct State { exp_avg: f32, exp_avg_sq: f32, max_exp_avg_sq: f32, last_grad: f32 }

struct Updated { param: f32, state: State }

struct Measured { corrected_sq: f32 }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    return Scalars(step, -expm1(step * h.log_beta1), -expm1(step * h.log_beta2), 0.0);
}

fn corrected(grad: f32, state: State, h: Hyper) -> f32 {
    return grad + h.gradient_scale * (grad - state.last_grad);
}

fn measure(grad: f32, state: State, h: Hyper) -> Measured {
    let c = corrected(grad, state, h);
    return Measured(c * c);
}

fn settle(s: Scalars, measured: Measured) -> Scalars {
    return Scalars(s.step, s.correction1, s.correction2, sqrt(measured.corrected_sq));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let c = corrected(grad, state, h) / max(s.norm, 1.0);
    let exp_avg = state.exp_avg + h.one_minus_beta1 * (c - state.exp_avg);
    let exp_avg_sq = h.beta2 * state.exp_avg_sq + h.one_minus_beta2 * c * c;
    var max_exp_avg_sq = state.max_exp_avg_sq;
    var second_moment = exp_avg_sq;
    if amsgrad {
        max_exp_avg_sq = max(max_exp_avg_sq, exp_avg_sq);
        second_moment = max_exp_avg_sq;
    }
    let u = exp_avg / s.correction1 / (sqrt(second_moment / s.correction2) + h.eps);
    let moved = param - h.lr * (h.weight_decay * param + u);
    return Updated(moved, State(exp_avg, exp_avg_sq, max_exp_avg_sq, grad));
}
