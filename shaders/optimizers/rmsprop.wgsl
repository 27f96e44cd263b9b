// RMSprop (Tieleman & Hinton 2012, lecture 6.5 of "Neural Networks for Machine Learning"), centered as by Graves (2013,
// arXiv:1308.0850, equations 38 to 45), with the semantics of torch.optim.RMSprop.
override use_momentum: bool = false;
override centered: bool = false;

struct Hyper { lr: f32, alpha: f32, one_minus_alpha: f32, eps: f32, weight_decay: f32, momentum: f32 }

struct State { square_avg: f32, momentum_buffer: f32, grad_avg: f32 }

struct Updated { param: f32, state: State }

fn update(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    let g = grad + h.weight_decay * param;
    let square_avg = h.alpha * state.square_avg + h.one_minus_alpha * g * g;
    var grad_avg = state.grad_avg;
    var variance = square_avg;
    if centered {
        grad_avg = grad_avg + h.one_minus_alpha * (g - grad_avg);
        // Less than zero by rounding alone; torch takes the root of that.
        variance = max(square_avg - grad_avg * grad_avg, 0.0);
    }
    var step = g / (sqrt(variance) + h.eps);
    var momentum_buffer = state.momentum_buffer;
    if use_momentum {
        // lr comes after the momentum: a schedule acts on the whole buffer.
        momentum_buffer = h.momentum * momentum_buffer + step;
        step = momentum_buffer;
    }
    return Updated(param - h.lr * step, State(square_avg, momentum_buffer, grad_avg));
}
