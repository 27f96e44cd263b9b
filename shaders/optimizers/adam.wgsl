// Adam (Kingma & Ba 2015, arXiv:1412.6980), AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101) and
// AMSGrad (Reddi et al. 2018, arXiv:1904.09237), with the semantics of torch.optim.
import package::lib::math::expm1;

override amsgrad: bool = false;
override decoupled_weight_decay: bool = false;

// log_beta and one_minus_beta are rounded once, from float64; log_beta is at least -100.
struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    eps: f32,
    weight_decay: f32,
}

struct Scalars { step: f32, correction1: f32, correction2: f32 }

struct State { exp_avg: f32, exp_avg_sq: f32, max_exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    // 1 - beta^step, without the cancellation.
    return Scalars(step, -expm1(step * h.log_beta1), -expm1(step * h.log_beta2));
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
    var max_exp_avg_sq = state.max_exp_avg_sq;
    var second_moment = exp_avg_sq;
    if amsgrad {
        // torch takes the maximum before the bias correction.
        max_exp_avg_sq = max(max_exp_avg_sq, exp_avg_sq);
        second_moment = max_exp_avg_sq;
    }
    let denominator = sqrt(second_moment / s.correction2) + h.eps;
    let step = exp_avg / s.correction1 / denominator;
    return Updated(param - h.lr * (decay + step), State(exp_avg, exp_avg_sq, max_exp_avg_sq));
}
