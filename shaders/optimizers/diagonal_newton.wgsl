// Newton's method with the diagonal of the Hessian (Becker & LeCun 1988, "Improving the Convergence of Back-Propagation
// Learning with Second Order Methods"). `hessian` is written from outside.
struct Hyper { lr: f32, damping: f32 }

struct State { hessian: f32 }

struct Updated { param: f32, state: State }

fn update(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    return Updated(param - h.lr * grad / (abs(state.hessian) + h.damping), state);
}
