// Shampoo (Gupta, Koren & Singer 2018, arXiv:1802.09568, algorithm 1). `optim/shampoo.py` puts the products between
// `prepare` and `update`: L += G Gᵀ, R += Gᵀ G, direction = L^(-1/4) G R^(-1/4).
import package::lib::cycle::cycle;

override use_momentum: bool = false;

// rows and columns are those of the tensor, which the products know.
struct Hyper { lr: f32, momentum: f32, weight_decay: f32, eps: f32, update_freq: f32, rows: f32, columns: f32 }

// refresh is 1 in the steps that compute the roots anew, which are the first and every `update_freq`-th after it.
struct Scalars { step: f32, refresh: f32 }

struct State { momentum_buffer: f32, direction: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    return Scalars(s.step + 1.0, select(0.0, 1.0, cycle(s.step, h.update_freq).at == 0.0));
}

fn prepare(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    return Updated(param, State(state.momentum_buffer, grad + h.weight_decay * param));
}

fn update(param: f32, state: State, h: Hyper) -> Updated {
    var step = state.direction;
    if use_momentum {
        step = h.momentum * state.momentum_buffer + state.direction;
    }
    return Updated(param - h.lr * step, State(step, state.direction));
}
