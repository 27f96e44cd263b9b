// Stochastic gradient descent with momentum (Sutskever et al. 2013), with the semantics of torch.optim.SGD.
override use_momentum: bool = false;
override nesterov: bool = false;

struct Hyper { lr: f32, momentum: f32, one_minus_dampening: f32, weight_decay: f32 }

struct Scalars { step: f32 }

struct State { momentum_buffer: f32 }

struct Updated { param: f32, state: State }

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    var g = grad + h.weight_decay * param;
    var buffer = state.momentum_buffer;
    if use_momentum {
        // The first gradient enters undamped.
        buffer = select(h.momentum * buffer + h.one_minus_dampening * g, g, s.step == 1.0);
        if nesterov {
            g = g + h.momentum * buffer;
        } else {
            g = buffer;
        }
    }
    return Updated(param - h.lr * g, State(buffer));
}
