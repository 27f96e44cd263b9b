// AdaBound and AMSBound (Luo et al. 2019, arXiv:1902.09843, algorithms 2 and 3), as the authors released them: with
// Adam's bias correction, and without the paper's 1 / sqrt(t).
import package::lib::math::expm1;

override amsbound: bool = false;

struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    eps: f32,
    final_lr: f32,
    gamma: f32,
    weight_decay: f32,
}

struct Scalars { step: f32, step_size: f32, lower_bound: f32, upper_bound: f32 }

struct State { exp_avg: f32, exp_avg_sq: f32, max_exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    let correction1 = -expm1(step * h.log_beta1);
    let correction2 = -expm1(step * h.log_beta2);
    let time = h.gamma * step;
    // final_lr (1 - 1 / (time + 1)) and final_lr (1 + 1 / time)
    let lower_bound = h.final_lr * (time / (time + 1.0));
    let upper_bound = h.final_lr * (1.0 + 1.0 / time);
    return Scalars(step, h.lr * sqrt(correction2) / correction1, lower_bound, upper_bound);
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let g = grad + h.weight_decay * param;
    let exp_avg = state.exp_avg + h.one_minus_beta1 * (g - state.exp_avg);
    let exp_avg_sq = h.beta2 * state.exp_avg_sq + h.one_minus_beta2 * g * g;
    var max_exp_avg_sq = state.max_exp_avg_sq;
    var second_moment = exp_avg_sq;
    if amsbound {
        max_exp_avg_sq = max(max_exp_avg_sq, exp_avg_sq);
        second_moment = max_exp_avg_sq;
    }
    let rate = clamp(s.step_size / (sqrt(second_moment) + h.eps), s.lower_bound, s.upper_bound);
    return Updated(param - rate * exp_avg, State(exp_avg, exp_avg_sq, max_exp_avg_sq));
}
