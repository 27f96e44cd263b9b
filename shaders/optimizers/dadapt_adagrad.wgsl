// D-Adaptation of AdaGrad (Defazio & Mishchenko 2023, arXiv:2301.07733): the learning rate is multiplied by d, an
// estimate of the largest distance to the solution along a coordinate, that only grows; with the details of the
// authors' release.
//
// d is one number: the sums are over all tensors, and all scalars but step are the same for each tensor.
struct Hyper { lr: f32, one_minus_momentum: f32, eps: f32, weight_decay: f32, d0: f32, growth_rate: f32 }

// The numerator is |sk|^2 - sum(dlr^2 |g|^2) in the weighted norms, skl1 = |sk|_1, dlr = d lr with the d before the
// step.
struct Scalars { step: f32, d: f32, numerator_weighted: f32, skl1: f32, dlr: f32 }

struct State { alphak: f32, sk: f32, x0: f32 }

struct Updated { param: f32, state: State }

struct Measured { numerator: f32, skl1: f32 }

// What alphak begins with.
const ALPHA0: f32 = 1e-6;

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let d = select(s.d, h.d0, s.d == 0.0);
    return Scalars(s.step + 1.0, d, s.numerator_weighted, s.skl1, d * h.lr);
}

// What this step adds to both sums. With a and b the roots of alphak before and after, the numerator gains
// (sk + dlr g)^2 / (b + eps) - sk^2 / (a + eps) - (dlr g)^2 / (b + eps), here without the differences of large terms.
fn measure(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Measured {
    let g = grad + h.weight_decay * param;
    let alphak = select(state.alphak, ALPHA0, s.step == 1.0);
    let a = sqrt(alphak);
    let b = sqrt(alphak + g * g);
    let lost = state.sk * state.sk * (g * g / (a + b)) / (a + h.eps);
    let sk = state.sk + s.dlr * g;
    return Measured((2.0 * s.dlr * g * state.sk - lost) / (b + h.eps), abs(sk) - abs(state.sk));
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    let numerator = s.numerator_weighted + measured.numerator;
    let skl1 = s.skl1 + measured.skl1;
    let has_sum = skl1 > 0.0;
    let d_hat = select(0.0, numerator / select(1.0, skl1, has_sum), has_sum);
    return Scalars(s.step, max(s.d, min(d_hat, s.d * h.growth_rate)), numerator, skl1, s.dlr);
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let g = grad + h.weight_decay * param;
    let alphak = select(state.alphak, ALPHA0, s.step == 1.0) + g * g;
    let x0 = select(state.x0, param, s.step == 1.0);
    let sk = state.sk + s.dlr * g;
    let z = x0 - sk / (sqrt(alphak) + h.eps);
    return Updated(param + h.one_minus_momentum * (z - param), State(alphak, sk, x0));
}
