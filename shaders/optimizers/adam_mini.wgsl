// Adam-mini (Zhang et al. 2024, arXiv:2406.16793): AdamW with one second moment for each tensor, the average of the
// mean of the squared gradient.
import package::lib::math::expm1;

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

struct Scalars { step: f32, exp_avg_sq: f32, correction1: f32, correction2: f32 }

struct State { exp_avg: f32 }

struct Updated { param: f32, state: State }

struct Measured { grad_sq: f32 }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    return Scalars(step, s.exp_avg_sq, -expm1(step * h.log_beta1), -expm1(step * h.log_beta2));
}

fn measure(grad: f32) -> Measured {
    return Measured(grad * grad);
}

fn settle(s: Scalars, measured: Measured, h: Hyper, size: f32) -> Scalars {
    let exp_avg_sq = h.beta2 * s.exp_avg_sq + h.one_minus_beta2 * (measured.grad_sq / max(size, 1.0));
    return Scalars(s.step, exp_avg_sq, s.correction1, s.correction2);
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let exp_avg = state.exp_avg + h.one_minus_beta1 * (grad - state.exp_avg);
    let denominator = sqrt(s.exp_avg_sq / s.correction2) + h.eps;
    let step = exp_avg / s.correction1 / denominator;
    return Updated(param - h.lr * (h.weight_decay * param + step), State(exp_avg));
}
