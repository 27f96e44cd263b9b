// Sophia (Liu et al. 2023, arXiv:2305.14342, algorithm 3). `hessian`, the average of the estimates of the Hessian's
// diagonal, is written from outside.
struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    eps: f32,
    gamma: f32,
    clip_threshold: f32,
    weight_decay: f32,
}

struct State { exp_avg: f32, hessian: f32 }

struct Updated { param: f32, state: State }

fn update(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    let exp_avg = state.exp_avg + h.one_minus_beta1 * (grad - state.exp_avg);
    let newton = exp_avg / max(h.gamma * state.hessian, h.eps);
    let u = clamp(newton, -h.clip_threshold, h.clip_threshold);
    return Updated(param - h.lr * (h.weight_decay * param + u), State(exp_avg, state.hessian));
}
