// Adadelta (Zeiler 2012, arXiv:1212.5701, algorithm 1), with the semantics of torch.optim.Adadelta.
struct Hyper { lr: f32, rho: f32, one_minus_rho: f32, eps: f32, weight_decay: f32 }

struct State { square_avg: f32, acc_delta: f32 }

struct Updated { param: f32, state: State }

fn update(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    let g = grad + h.weight_decay * param;
    let square_avg = h.rho * state.square_avg + h.one_minus_rho * g * g;
    let delta = sqrt(state.acc_delta + h.eps) / sqrt(square_avg + h.eps) * g;
    let acc_delta = h.rho * state.acc_delta + h.one_minus_rho * delta * delta;
    return Updated(param - h.lr * delta, State(square_avg, acc_delta));
}
