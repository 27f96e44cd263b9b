// APOLLO (Zhu et al. 2024, arXiv:2412.05270, algorithm 1): gradients scaled by what Adam does to their random projections,
// and the norm-growth limiter. Between `prepare` and `measure` `optim/apollo.py` scales the direction, or puts Adam's step
// in its place where the short side of a tensor is no longer than the rank.
import package::lib::cycle::cycle;
import package::lib::math::expm1;

// `channel_factors` knows what is not used here; rows and columns are those of the tensor.
struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    eps: f32,
    weight_decay: f32,
    rank: f32,
    update_proj_gap: f32,
    scale: f32,
    gamma: f32,
    rows: f32,
    columns: f32,
}

// norm is that of the direction once it is limited; draw counts the projections; factor is what the direction is
// multiplied with. Where gradients are projected, both corrections are 1, and are made up for in the factor: the limiter
// sees norms without them, as in the authors' code.
struct Scalars { step: f32, norm: f32, draw: f32, correction1: f32, correction2: f32, factor: f32 }

struct State { direction: f32 }

struct Measured { direction_sq: f32 }

struct Updated { param: f32, state: State }

fn is_projected(h: Hyper) -> bool {
    return min(h.rows, h.columns) > h.rank;
}

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    let draw = cycle(s.step, h.update_proj_gap).number;
    let correction1 = -expm1(step * h.log_beta1);
    let correction2 = -expm1(step * h.log_beta2);
    if is_projected(h) {
        return Scalars(step, s.norm, draw, 1.0, 1.0, h.scale * sqrt(correction2) / correction1);
    }
    return Scalars(step, s.norm, draw, correction1, correction2, 1.0);
}

fn prepare(param: f32, grad: f32, state: State) -> Updated {
    return Updated(param, State(grad));
}

fn measure(state: State) -> Measured {
    return Measured(state.direction * state.direction);
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    let norm = sqrt(measured.direction_sq);
    let most = h.gamma * s.norm; // 0 in the first step, after one without a gradient, and without a limit
    let is_limited = most > 0.0 && norm > most;
    let ratio = select(1.0, most / norm, is_limited);
    let kept = select(norm, most, is_limited);
    return Scalars(
        s.step,
        select(0.0, kept, is_projected(h)),
        s.draw,
        s.correction1,
        s.correction2,
        select(1.0, ratio * s.factor, is_projected(h))
    );
}

fn update(param: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    return Updated(param - h.lr * (h.weight_decay * param + s.factor * state.direction), state);
}
