// Adagrad (Duchi, Hazan & Singer 2011, JMLR 12), with the semantics of torch.optim.Adagrad.
struct Hyper { lr: f32, lr_decay: f32, weight_decay: f32, initial_accumulator_value: f32, eps: f32 }

struct Scalars { step: f32, lr: f32 }

struct State { sum: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    return Scalars(s.step + 1.0, h.lr / (1.0 + s.step * h.lr_decay));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let g = grad + h.weight_decay * param;
    let sum = select(state.sum, h.initial_accumulator_value, s.step == 1.0) + g * g;
    return Updated(param - s.lr * (g / (sqrt(sum) + h.eps)), State(sum));
}
