// LAMB (You et al. 2020, arXiv:1904.00962, algorithm 2): Adam with decoupled decay, scaled per tensor by the ratio of
// the norms of the parameter and of the step; the ratio is 1 where either norm is 0, as in optax.
import package::lib::math::expm1;

override bias_correction: bool = true;

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

struct Scalars { step: f32, correction1: f32, correction2: f32, trust_ratio: f32 }

struct State { exp_avg: f32, exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

struct Measured { param_sq: f32, direction_sq: f32 }

struct Direction { value: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    return Scalars(step, -expm1(step * h.log_beta1), -expm1(step * h.log_beta2), 1.0);
}

fn direction(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Direction {
    let exp_avg = state.exp_avg + h.one_minus_beta1 * (grad - state.exp_avg);
    let exp_avg_sq = h.beta2 * state.exp_avg_sq + h.one_minus_beta2 * grad * grad;
    var first = exp_avg;
    var second = exp_avg_sq;
    if bias_correction {
        first = first / s.correction1;
        second = second / s.correction2;
    }
    return Direction(first / (sqrt(second) + h.eps) + h.weight_decay * param, State(exp_avg, exp_avg_sq));
}

fn measure(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Measured {
    let step = direction(param, grad, state, h, s).value;
    return Measured(param * param, step * step);
}

fn settle(s: Scalars, measured: Measured) -> Scalars {
    let is_defined = measured.param_sq > 0.0 && measured.direction_sq > 0.0;
    let trust_ratio = select(1.0, sqrt(measured.param_sq) / sqrt(measured.direction_sq), is_defined);
    return Scalars(s.step, s.correction1, s.correction2, trust_ratio);
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let step = direction(param, grad, state, h, s);
    return Updated(param - h.lr * s.trust_ratio * step.value, step.state);
}
