// RAdam (Liu et al. 2020, arXiv:1908.03265, algorithm 2): Adam whose step is rectified for the variance of its
// denominator, and without the denominator where that variance is infinite; with the semantics of torch.optim.RAdam.
import package::lib::math::expm1;

override decoupled_weight_decay: bool = false;

struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    rho_inf: f32, // 2 / (1 - beta2) - 1
    rectification_inf: f32, // rho_inf / ((rho_inf - 4) (rho_inf - 2)); 0 where rho_inf is at most 5
    eps: f32,
    weight_decay: f32,
}

// `adaptive` is r_t sqrt(1 - beta2^t), and 0 where the step goes without the denominator.
struct Scalars { step: f32, correction1: f32, adaptive: f32 }

struct State { exp_avg: f32, exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

// coth(z) - 1/z for z from 0 to 1/2
fn coth_remainder(z: f32) -> f32 {
    let square = z * z;
    return z * (0.333333333 - square * (0.0222222222 - square * (0.00211640212 - square * 0.000211640212)));
}

// rho_inf - 2 t beta2^t / (1 - beta2^t). With x = -t log(beta2), rho_inf is coth(x / 2t) and beta2^t / (1 - beta2^t) is
// (coth(x / 2) - 1) / 2; at small x the two terms are almost equal, and what they have in common, 2t / x, is left out.
fn sma_length(t: f32, h: Hyper) -> f32 {
    let x = -t * h.log_beta2;
    let near = coth_remainder(-0.5 * h.log_beta2) + (t - t * coth_remainder(0.5 * x));
    let far = h.rho_inf - 2.0 * t / expm1(x);
    return select(far, near, x < 1.0);
}

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    let rho = sma_length(step, h);
    let rectification = sqrt((rho - 4.0) * (rho - 2.0) / rho * h.rectification_inf);
    // torch's bound; the paper's is 4.
    let adaptive = select(0.0, rectification * sqrt(-expm1(step * h.log_beta2)), rho > 5.0);
    return Scalars(step, -expm1(step * h.log_beta1), adaptive);
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    var g = grad;
    var decay = 0.0;
    if decoupled_weight_decay {
        decay = h.weight_decay * param;
    } else {
        g = g + h.weight_decay * param;
    }
    let exp_avg = state.exp_avg + h.one_minus_beta1 * (g - state.exp_avg);
    let exp_avg_sq = h.beta2 * state.exp_avg_sq + h.one_minus_beta2 * g * g;
    // torch adds eps before the bias correction.
    let adaptive = select(1.0, s.adaptive / (sqrt(exp_avg_sq) + h.eps), s.adaptive > 0.0);
    let step = exp_avg / s.correction1 * adaptive;
    return Updated(param - h.lr * (decay + step), State(exp_avg, exp_avg_sq));
}
