// DoG, distance over gradients (Ivgi et al. 2023, arXiv:2302.12022): SGD whose learning rate is the largest distance
// from the start so far, over the root of the sum of all squared norms of the gradient.
struct Hyper { lr: f32, reps_rel: f32, eps: f32, weight_decay: f32 }

struct Scalars { step: f32, max_dist: f32, sum_sq_norm_grads: f32, eta: f32 }

struct State { x0: f32 }

struct Updated { param: f32, state: State }

struct Measured { param_sq: f32, dist_sq: f32, grad_sq: f32 }

fn advance(s: Scalars) -> Scalars {
    return Scalars(s.step + 1.0, s.max_dist, s.sum_sq_norm_grads, 0.0);
}

fn measure(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Measured {
    let distance = select(param - state.x0, 0.0, s.step == 1.0);
    let g = grad + h.weight_decay * param;
    return Measured(param * param, distance * distance, g * g);
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    let first = h.reps_rel * (1.0 + sqrt(measured.param_sq));
    let max_dist = select(max(s.max_dist, sqrt(measured.dist_sq)), first, s.max_dist == 0.0);
    let sum_sq_norm_grads = s.sum_sq_norm_grads + measured.grad_sq;
    let root = sqrt(sum_sq_norm_grads + h.eps);
    return Scalars(s.step, max_dist, sum_sq_norm_grads, select(max_dist / root, 0.0, root == 0.0));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let x0 = select(state.x0, param, s.step == 1.0);
    return Updated(param - h.lr * s.eta * (grad + h.weight_decay * param), State(x0));
}
