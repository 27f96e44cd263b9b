// LARS (You et al. 2017, arXiv:1708.03888, algorithm 1): momentum with a learning rate for each tensor, the ratio of
// the norms of the parameter and of its decayed gradient; the ratio is 1 where either is 0, as in optax.
override use_momentum: bool = true;
override nesterov: bool = false;

struct Hyper { lr: f32, momentum: f32, weight_decay: f32, trust_coefficient: f32, eps: f32 }

struct Scalars { step: f32, trust_ratio: f32 }

struct State { momentum_buffer: f32 }

struct Updated { param: f32, state: State }

struct Measured { param_sq: f32, grad_sq: f32 }

fn advance(s: Scalars) -> Scalars {
    return Scalars(s.step + 1.0, 1.0);
}

fn measure(param: f32, grad: f32) -> Measured {
    return Measured(param * param, grad * grad);
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    let param_norm = sqrt(measured.param_sq);
    let decayed_norm = sqrt(measured.grad_sq) + h.weight_decay * param_norm;
    let is_defined = param_norm > 0.0 && decayed_norm > 0.0;
    let denominator = select(1.0, decayed_norm + h.eps, is_defined);
    return Scalars(s.step, select(1.0, h.trust_coefficient * param_norm / denominator, is_defined));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    var step = h.lr * s.trust_ratio * (grad + h.weight_decay * param);
    var buffer = state.momentum_buffer;
    if use_momentum {
        // The learning rate is within the buffer.
        buffer = h.momentum * buffer + step;
        if nesterov {
            step = step + h.momentum * buffer;
        } else {
            step = buffer;
        }
    }
    return Updated(param - step, State(buffer));
}
