// D-Adaptation of SGD (Defazio & Mishchenko 2023, arXiv:2301.07733): the learning rate is multiplied by d / |g0|, d
// being an estimate of the distance to the solution that only grows; with the details of the authors' release.
//
// d is one number: the sums are over all tensors, and all scalars but step are the same for each tensor.
struct Hyper { lr: f32, one_minus_momentum: f32, weight_decay: f32, d0: f32, growth_rate: f32 }

// g0_norm is that of the first gradient, dlr = d lr / g0_norm with the d before the step.
struct Scalars { step: f32, d: f32, g0_norm: f32, numerator_weighted: f32, dlr: f32 }

struct State { s: f32, x0: f32 }

struct Updated { param: f32, state: State }

struct Measured { grad_sq: f32, numerator: f32, s_sq: f32 }

fn rate(d: f32, g0_norm: f32, lr: f32) -> f32 {
    let is_known = g0_norm > 0.0;
    return select(0.0, d * lr / select(1.0, g0_norm, is_known), is_known);
}

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let d = select(s.d, h.d0, s.d == 0.0);
    return Scalars(s.step + 1.0, d, s.g0_norm, s.numerator_weighted, rate(d, s.g0_norm, h.lr));
}

fn measure(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Measured {
    let g = grad + h.weight_decay * param;
    let sum = state.s + s.dlr * g;
    let counts = select(1.0, 0.0, h.lr == 0.0);
    return Measured(counts * grad * grad, s.dlr * g * state.s, counts * sum * sum);
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    let is_first = s.g0_norm == 0.0;
    let g0_norm = select(s.g0_norm, sqrt(measured.grad_sq), is_first);
    let numerator = s.numerator_weighted + measured.numerator;
    let has_sum = measured.s_sq > 0.0;
    let d_hat = select(0.0, 2.0 * numerator / sqrt(select(1.0, measured.s_sq, has_sum)), has_sum);
    let d = max(s.d, min(d_hat, s.d * h.growth_rate));
    return Scalars(s.step, d, g0_norm, numerator, select(s.dlr, rate(s.d, g0_norm, h.lr), is_first));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let x0 = select(state.x0, param, s.step == 1.0);
    let sum = state.s + s.dlr * (grad + h.weight_decay * param);
    let z = x0 - sum;
    return Updated(param + h.one_minus_momentum * (z - param), State(sum, x0));
}
