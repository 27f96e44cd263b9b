// AdaBelief (Zhuang et al. 2020, arXiv:2010.07468, algorithm 2): as Adam, with the square of the gradient's distance
// from its average.
import package::lib::math::expm1;

override decoupled_weight_decay: bool = true;

struct Hyper {
    lr: f32,
    beta1: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    eps: f32,
    weight_decay: f32,
}

struct Scalars { step: f32, correction1: f32, correction2: f32 }

struct State { exp_avg: f32, exp_avg_var: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    return Scalars(step, -expm1(step * h.log_beta1), -expm1(step * h.log_beta2));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    var g = grad;
    var decay = 0.0;
    if decoupled_weight_decay {
        decay = h.weight_decay * param;
    } else {
        g = g + h.weight_decay * param;
    }
    let change = g - state.exp_avg;
    let exp_avg = state.exp_avg + h.one_minus_beta1 * change;
    let surprise = h.beta1 * change; // g - exp_avg
    let exp_avg_var = h.beta2 * state.exp_avg_var + h.one_minus_beta2 * surprise * surprise + h.eps;
    let u = exp_avg / s.correction1 / (sqrt(exp_avg_var / s.correction2) + h.eps);
    return Updated(param - h.lr * (decay + u), State(exp_avg, exp_avg_var));
}
