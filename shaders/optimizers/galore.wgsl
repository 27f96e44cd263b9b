// GaLore (Zhao et al. 2024, arXiv:2403.03507, algorithm 2): Adam on gradients that are projected to a low rank. Between
// `prepare` and `update` `optim/galore.py` projects the gradient, steps, and projects back.
import package::lib::cycle::cycle;
import package::lib::math::expm1;

// `low_rank_adam` knows what is not used here; rows and columns are those of the tensor.
struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    eps: f32,
    weight_decay: f32,
    scale: f32,
    update_proj_gap: f32,
    rows: f32,
    columns: f32,
}

// refresh is 1 in the steps that make a projector, which are the first and every `update_proj_gap`-th after it.
struct Scalars { step: f32, refresh: f32, correction1: f32, correction2: f32 }

struct State { direction: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    let refresh = select(0.0, 1.0, cycle(s.step, h.update_proj_gap).at == 0.0);
    return Scalars(step, refresh, -expm1(step * h.log_beta1), -expm1(step * h.log_beta2));
}

fn prepare(param: f32, grad: f32, state: State) -> Updated {
    return Updated(param, State(grad));
}

fn update(param: f32, state: State, h: Hyper) -> Updated {
    return Updated(param - h.lr * (h.weight_decay * param + h.scale * state.direction), state);
}
