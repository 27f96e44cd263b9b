// NovoGrad (Ginsburg et al. 2019, arXiv:1905.11286, algorithm 1): the gradient divided by an average of its norm, one
// for each tensor, before it enters the momentum.
struct Hyper { lr: f32, beta1: f32, beta2: f32, one_minus_beta2: f32, eps: f32, weight_decay: f32 }

struct Scalars { step: f32, exp_avg_sq: f32 }

struct State { exp_avg: f32 }

struct Updated { param: f32, state: State }

struct Measured { grad_sq: f32 }

fn advance(s: Scalars) -> Scalars {
    return Scalars(s.step + 1.0, s.exp_avg_sq);
}

fn measure(grad: f32) -> Measured {
    return Measured(grad * grad);
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    let average = h.beta2 * s.exp_avg_sq + h.one_minus_beta2 * measured.grad_sq;
    return Scalars(s.step, select(average, measured.grad_sq, s.step == 1.0));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let normalized = grad / (sqrt(s.exp_avg_sq) + h.eps) + h.weight_decay * param;
    let exp_avg = h.beta1 * state.exp_avg + normalized;
    return Updated(param - h.lr * exp_avg, State(exp_avg));
}
