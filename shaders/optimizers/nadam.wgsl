// NAdam (Dozat 2016, "Incorporating Nesterov Momentum into Adam", algorithm 2), with the schedule of mu, the state and
// the weight decay of torch.optim.NAdam.
import package::lib::math::{expm1, precise_exp};

override decoupled_weight_decay: bool = false;

struct Hyper {
    lr: f32,
    beta1: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    eps: f32,
    weight_decay: f32,
    mu_exponent: f32, // momentum_decay log(0.96)
}

struct Scalars { step: f32, mu_product: f32, correction2: f32, grad_weight: f32, exp_avg_weight: f32 }

struct State { exp_avg: f32, exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

// 1 - 0.96^(step momentum_decay) / 2
fn schedule(step: f32, h: Hyper) -> f32 {
    return 1.0 - 0.5 * precise_exp(step * h.mu_exponent);
}

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    let mu = h.beta1 * schedule(step, h);
    let mu_next = h.beta1 * schedule(step + 1.0, h);
    let mu_product = mu * select(s.mu_product, 1.0, s.step == 0.0);
    let grad_weight = (1.0 - mu) / (1.0 - mu_product);
    let exp_avg_weight = mu_next / (1.0 - mu_product * mu_next);
    return Scalars(step, mu_product, -expm1(step * h.log_beta2), grad_weight, exp_avg_weight);
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    var g = grad;
    var decay = 0.0;
    if decoupled_weight_decay {
        decay = h.weight_decay * param;
    } else {
        g = g + h.weight_decay * param;
    }
    let exp_avg = state.exp_avg + h.one_minus_beta1 * (g - state.exp_avg);
    let exp_avg_sq = h.beta2 * state.exp_avg_sq + h.one_minus_beta2 * g * g;
    let direction = s.grad_weight * g + s.exp_avg_weight * exp_avg;
    let step = direction / (sqrt(exp_avg_sq / s.correction2) + h.eps);
    return Updated(param - h.lr * (decay + step), State(exp_avg, exp_avg_sq));
}
