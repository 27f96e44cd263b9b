// ADOPT (Taniguchi et al. 2024, arXiv:2411.02853, algorithm 2): the gradient is divided by the root of the average
// before it, then averaged. The first step only begins that average.
override clipping: bool = true;
override decouple: bool = false;

struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    eps: f32,
    weight_decay: f32,
}

// clip: the fourth root of the steps before.
struct Scalars { step: f32, clip: f32 }

struct State { exp_avg: f32, exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars) -> Scalars {
    return Scalars(s.step + 1.0, sqrt(sqrt(s.step)));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    var g = grad;
    var decay = 0.0;
    if decouple {
        decay = h.weight_decay * param;
    } else {
        g = g + h.weight_decay * param;
    }
    let is_first = s.step == 1.0;
    var normed = g / max(sqrt(state.exp_avg_sq), h.eps);
    if clipping {
        normed = clamp(normed, -s.clip, s.clip);
    }
    let exp_avg = select(state.exp_avg + h.one_minus_beta1 * (normed - state.exp_avg), 0.0, is_first);
    let exp_avg_sq = select(h.beta2 * state.exp_avg_sq + h.one_minus_beta2 * g * g, g * g, is_first);
    let moved = select(param - h.lr * (decay + exp_avg), param, is_first);
    return Updated(moved, State(exp_avg, exp_avg_sq));
}
