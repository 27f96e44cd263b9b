// Cautious Lion (Liang et al. 2024, arXiv:2411.16085, algorithm 2): only the elements move whose direction agrees with
// the gradient, and the further the fewer they are.
struct Hyper {
    lr: f32,
    beta1: f32,
    one_minus_beta1: f32,
    one_minus_beta2: f32,
    weight_decay: f32,
}

struct Scalars { step: f32, scale: f32 }

struct State { exp_avg: f32 }

struct Updated { param: f32, state: State }

struct Measured { aligned: f32 }

fn direction(grad: f32, state: State, h: Hyper) -> f32 {
    return sign(h.beta1 * state.exp_avg + h.one_minus_beta1 * grad);
}

fn measure(grad: f32, state: State, h: Hyper) -> Measured {
    return Measured(select(0.0, 1.0, direction(grad, state, h) * grad > 0.0));
}

fn advance(s: Scalars) -> Scalars {
    return Scalars(s.step + 1.0, 0.0);
}

fn settle(s: Scalars, measured: Measured, size: f32) -> Scalars {
    return Scalars(s.step, size / (measured.aligned + 1.0));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let exp_avg = state.exp_avg + h.one_minus_beta2 * (grad - state.exp_avg);
    let u = direction(grad, state, h);
    let masked = select(0.0, s.scale * u, u * grad > 0.0);
    return Updated(param - h.lr * (h.weight_decay * param + masked), State(exp_avg));
}
