// FedProx (Li et al. 2020, arXiv:1812.06127, equation 2): SGD with momentum on the loss plus
// mu / 2 |param - global_param|^2.
override use_momentum: bool = false;

struct Hyper { lr: f32, mu: f32, momentum: f32, weight_decay: f32 }

struct Scalars { step: f32 }

struct State { global_param: f32, momentum_buffer: f32 }

struct Updated { param: f32, state: State }

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    var g = grad + h.weight_decay * param + h.mu * (param - state.global_param);
    var buffer = state.momentum_buffer;
    if use_momentum {
        buffer = select(h.momentum * buffer + g, g, s.step == 1.0);
        g = buffer;
    }
    return Updated(param - h.lr * g, State(state.global_param, buffer));
}
