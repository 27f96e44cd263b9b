// Meta-SGD (Li et al. 2017, arXiv:1707.09835, algorithm 1): a step with a learning rate for each element; `restore` is the
// step of the parameters from before and of those rates by the gradient after it.
override second_order: bool = false;

struct Hyper { lr: f32, meta_lr: f32 }

struct Scalars { step: f32 }

// curvature is the Hessian of the support loss times alpha times the query gradient.
struct State { alpha: f32, initial_param: f32, support_grad: f32, curvature: f32 }

struct Updated { param: f32, state: State }

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let alpha = select(state.alpha, h.lr, s.step == 1.0);
    return Updated(param - alpha * grad, State(alpha, param, grad, state.curvature));
}

fn restore(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    var g = grad;
    if second_order {
        g = g - state.curvature;
    }
    let alpha = state.alpha + h.meta_lr * state.support_grad * grad;
    let moved = state.initial_param - h.meta_lr * g;
    return Updated(moved, State(alpha, state.initial_param, state.support_grad, state.curvature));
}
