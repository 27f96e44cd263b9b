// AdEMAMix (Pagliardini et al. 2024, arXiv:2409.03137, algorithm 1), with the schedules of alpha and beta3 of its
// section 3: alpha grows linearly, and the half-life of the slow average grows linearly from that of the fast one.
import package::lib::math::expm1;

// Without a schedule the number of its steps is 0.
struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    log_beta3: f32,
    alpha: f32,
    alpha_warmup: f32,
    beta3_warmup: f32,
    eps: f32,
    weight_decay: f32,
}

struct Scalars { step: f32, correction1: f32, correction2: f32, alpha: f32, one_minus_beta3: f32 }

struct State { exp_avg_fast: f32, exp_avg_slow: f32, exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

fn progress(step: f32, steps: f32) -> f32 {
    return min(step / max(steps, 1.0), 1.0);
}

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    let done = progress(step, h.beta3_warmup);
    let log_beta3 = h.log_beta1 * h.log_beta3 / ((1.0 - done) * h.log_beta3 + done * h.log_beta1);
    return Scalars(
        step,
        -expm1(step * h.log_beta1),
        -expm1(step * h.log_beta2),
        h.alpha * progress(step, h.alpha_warmup),
        -expm1(select(log_beta3, h.log_beta3, done == 1.0)),
    );
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let fast = state.exp_avg_fast + h.one_minus_beta1 * (grad - state.exp_avg_fast);
    let slow = state.exp_avg_slow + s.one_minus_beta3 * (grad - state.exp_avg_slow);
    let exp_avg_sq = h.beta2 * state.exp_avg_sq + h.one_minus_beta2 * grad * grad;
    let u = (fast / s.correction1 + s.alpha * slow) / (sqrt(exp_avg_sq / s.correction2) + h.eps);
    return Updated(param - h.lr * (h.weight_decay * param + u), State(fast, slow, exp_avg_sq));
}
