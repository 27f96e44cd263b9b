// Adan (Xie et al. 2022, arXiv:2208.06677, algorithm 1), with the decays as in the authors' release: 1 less those of
// the paper.
import package::lib::math::expm1;

override no_prox: bool = false;

struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    beta3: f32,
    one_minus_beta3: f32,
    log_beta3: f32,
    eps: f32,
    weight_decay: f32,
}

struct Scalars { step: f32, correction1: f32, correction2: f32, correction3: f32 }

struct State { exp_avg: f32, exp_avg_diff: f32, exp_avg_sq: f32, neg_pre_grad: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    return Scalars(step, -expm1(step * h.log_beta1), -expm1(step * h.log_beta2), -expm1(step * h.log_beta3));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let difference = select(grad + state.neg_pre_grad, 0.0, s.step == 1.0);
    let exp_avg = state.exp_avg + h.one_minus_beta1 * (grad - state.exp_avg);
    let exp_avg_diff = state.exp_avg_diff + h.one_minus_beta2 * (difference - state.exp_avg_diff);
    let lookahead = grad + h.beta2 * difference;
    let exp_avg_sq = h.beta3 * state.exp_avg_sq + h.one_minus_beta3 * lookahead * lookahead;
    let momentum = exp_avg / s.correction1 + h.beta2 * exp_avg_diff / s.correction2;
    let u = momentum / (sqrt(exp_avg_sq / s.correction3) + h.eps);
    let decay = h.lr * h.weight_decay;
    var decayed = param;
    if no_prox {
        decayed = param - (decay * param + h.lr * u);
    } else {
        // (param - lr u) / (1 + decay), where 1 + decay would be rounded.
        let moved = param - h.lr * u;
        decayed = moved - decay / (1.0 + decay) * moved;
    }
    return Updated(decayed, State(exp_avg, exp_avg_diff, exp_avg_sq, -grad));
}
