// Yogi (Zaheer et al. 2018, "Adaptive Methods for Nonconvex Optimization", algorithm 2), with Adam's bias correction
// and the initial value of both averages as in optax.
import package::lib::math::expm1;

struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    eps: f32,
    initial_accumulator: f32,
    weight_decay: f32,
}

struct Scalars { step: f32, correction1: f32, correction2: f32 }

struct State { exp_avg: f32, exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    return Scalars(step, -expm1(step * h.log_beta1), -expm1(step * h.log_beta2));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let g = grad + h.weight_decay * param;
    let first = select(state.exp_avg, h.initial_accumulator, s.step == 1.0);
    let second = select(state.exp_avg_sq, h.initial_accumulator, s.step == 1.0);
    let exp_avg = first + h.one_minus_beta1 * (g - first);
    let square = g * g;
    let exp_avg_sq = second - h.one_minus_beta2 * sign(second - square) * square;
    let u = exp_avg / s.correction1 / (sqrt(exp_avg_sq / s.correction2) + h.eps);
    return Updated(param - h.lr * u, State(exp_avg, exp_avg_sq));
}
