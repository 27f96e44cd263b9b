// D-Adaptation of Adam (Defazio & Mishchenko 2023, arXiv:2301.07733): the learning rate is multiplied by d, an estimate
// of the distance to the solution that only grows; with the details of the authors' release.
//
// d is one number: the sums are over all tensors, and all scalars but step are the same for each tensor.
import package::lib::math::expm1;

override decouple: bool = false;

struct Hyper {
    lr: f32,
    beta1: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    sqrt_beta2: f32,
    one_minus_sqrt_beta2: f32,
    eps: f32,
    weight_decay: f32,
    use_bias_correction: f32,
    d0: f32,
    growth_rate: f32,
}

// k counts the steps of all tensors; dlr = d lr with the d before the step.
struct Scalars { step: f32, k: f32, d: f32, numerator_weighted: f32, dlr: f32 }

struct State { s: f32, exp_avg: f32, exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

struct Measured { numerator: f32, sk_l1: f32 }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let d = select(s.d, h.d0, s.d == 0.0);
    let k = s.k + 1.0;
    let correction = sqrt(-expm1(k * h.log_beta2)) / -expm1(k * h.log_beta1);
    let dlr = d * h.lr * select(1.0, correction, h.use_bias_correction != 0.0);
    return Scalars(s.step + 1.0, s.k, d, s.numerator_weighted, dlr);
}

fn decayed(param: f32, grad: f32, h: Hyper) -> f32 {
    var g = grad;
    if !decouple {
        g = g + h.weight_decay * param;
    }
    return g;
}

// The state after the step; a learning rate of 0 freezes it.
fn advanced(g: f32, state: State, h: Hyper, s: Scalars) -> State {
    let sum = h.sqrt_beta2 * state.s + h.one_minus_sqrt_beta2 * s.dlr * g;
    let exp_avg = h.beta1 * state.exp_avg + h.one_minus_beta1 * s.dlr * g;
    let exp_avg_sq = h.beta2 * state.exp_avg_sq + h.one_minus_beta2 * g * g;
    let is_frozen = h.lr == 0.0;
    return State(
        select(sum, state.s, is_frozen),
        select(exp_avg, state.exp_avg, is_frozen),
        select(exp_avg_sq, state.exp_avg_sq, is_frozen),
    );
}

fn measure(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Measured {
    let g = decayed(param, grad, h);
    let numerator = s.dlr * g * (state.s / (sqrt(state.exp_avg_sq) + h.eps));
    return Measured(numerator, select(abs(advanced(g, state, h, s).s), 0.0, h.lr == 0.0));
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    // Without any gradient yet, nothing happens.
    let has_begun = measured.sk_l1 > 0.0;
    let numerator = h.sqrt_beta2 * s.numerator_weighted + h.one_minus_sqrt_beta2 * measured.numerator;
    let d_hat = numerator / (h.one_minus_sqrt_beta2 * select(1.0, measured.sk_l1, has_begun));
    return Scalars(
        s.step,
        select(s.k, s.k + 1.0, has_begun),
        select(s.d, max(s.d, min(d_hat, s.d * h.growth_rate)), has_begun),
        select(s.numerator_weighted, numerator, has_begun),
        select(0.0, s.dlr, has_begun),
    );
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let next = advanced(decayed(param, grad, h), state, h, s);
    var decay = 0.0;
    if decouple {
        decay = s.dlr * h.weight_decay * param;
    }
    // exp_avg has the learning rate of each step within it.
    let step = next.exp_avg / (sqrt(next.exp_avg_sq) + h.eps);
    return Updated(param - (decay + step), next);
}
