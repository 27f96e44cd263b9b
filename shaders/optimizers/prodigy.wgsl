// Prodigy (Mishchenko & Defazio 2023, arXiv:2306.06101): Adam whose learning rate is multiplied by d, an estimate of
// the distance to the solution that only grows; with the options and details of the authors' release.
//
// d is one number: the sums are over all tensors, and all scalars but step are the same for each tensor.
import package::lib::math::expm1;

override decouple: bool = true;
override safeguard_warmup: bool = false;

struct Hyper {
    lr: f32,
    beta1: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    beta3: f32,
    eps: f32,
    weight_decay: f32,
    use_bias_correction: f32,
    d0: f32,
    d_coef: f32,
    growth_rate: f32,
}

// k counts the steps of all tensors; d_before and d are those before and after the step; dlr = d_before lr.
struct Scalars { step: f32, k: f32, d: f32, d_max: f32, d_numerator: f32, d_before: f32, dlr: f32 }

struct State { s: f32, p0: f32, exp_avg: f32, exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

struct Measured { numerator: f32, denominator: f32 }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let d = select(s.d, h.d0, s.d == 0.0);
    let k = s.k + 1.0;
    let correction = sqrt(-expm1(k * h.log_beta2)) / -expm1(k * h.log_beta1);
    let dlr = d * h.lr * select(1.0, correction, h.use_bias_correction != 0.0);
    return Scalars(s.step + 1.0, s.k, d, max(s.d_max, d), s.d_numerator, d, dlr);
}

fn decayed(param: f32, grad: f32, h: Hyper) -> f32 {
    var g = grad;
    if !decouple {
        g = g + h.weight_decay * param;
    }
    return g;
}

// The state after the step; a learning rate of 0 freezes it.
fn advanced(param: f32, g: f32, state: State, h: Hyper, s: Scalars) -> State {
    let p0 = select(state.p0, param, s.step == 1.0);
    var rate = s.dlr;
    if safeguard_warmup {
        rate = s.d_before;
    }
    let sum = h.beta3 * state.s + s.d_before / h.d0 * rate * g;
    let dg = s.d_before * g;
    let exp_avg = h.beta1 * state.exp_avg + h.one_minus_beta1 * dg;
    let exp_avg_sq = h.beta2 * state.exp_avg_sq + h.one_minus_beta2 * dg * dg;
    let is_frozen = h.lr == 0.0;
    return State(
        select(sum, state.s, is_frozen),
        p0,
        select(exp_avg, state.exp_avg, is_frozen),
        select(exp_avg_sq, state.exp_avg_sq, is_frozen),
    );
}

fn measure(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Measured {
    let g = decayed(param, grad, h);
    let next = advanced(param, g, state, h, s);
    let numerator = s.d_before / h.d0 * s.dlr * g * (next.p0 - param);
    return Measured(numerator, select(abs(next.s), 0.0, h.lr == 0.0));
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    // Without any gradient yet, nothing happens.
    let has_begun = measured.denominator > 0.0;
    let numerator = h.beta3 * s.d_numerator + measured.numerator;
    let d_hat = h.d_coef * numerator / select(1.0, measured.denominator, has_begun);
    // The first rise is not bounded by the growth rate.
    let d = select(s.d, max(s.d, d_hat), s.d == h.d0);
    let d_max = max(s.d_max, d_hat);
    return Scalars(
        s.step,
        select(s.k, s.k + 1.0, has_begun),
        select(s.d, min(d_max, d * h.growth_rate), has_begun),
        select(s.d_max, d_max, has_begun),
        select(s.d_numerator, numerator, has_begun),
        s.d_before,
        select(0.0, s.dlr, has_begun),
    );
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let next = advanced(param, decayed(param, grad, h), state, h, s);
    var decay = 0.0;
    if decouple {
        decay = h.weight_decay * param;
    }
    let root = sqrt(next.exp_avg_sq) + s.d * h.eps;
    let step = select(next.exp_avg / root, 0.0, root == 0.0);  // d eps is 0 in float32 for the smallest d
    return Updated(param - s.dlr * (decay + step), next);
}
