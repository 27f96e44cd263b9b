// Adamax (Kingma & Ba 2015, arXiv:1412.6980, section 7.1): Adam with the infinity norm, with the semantics of
// torch.optim.Adamax.
import package::lib::math::expm1;

struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    eps: f32,
    weight_decay: f32,
}

struct Scalars { step: f32, correction1: f32 }

struct State { exp_avg: f32, exp_inf: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    return Scalars(step, -expm1(step * h.log_beta1));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let g = grad + h.weight_decay * param;
    let exp_avg = state.exp_avg + h.one_minus_beta1 * (g - state.exp_avg);
    // The maximum needs no bias correction. torch has eps within it.
    let exp_inf = max(h.beta2 * state.exp_inf, abs(g) + h.eps);
    return Updated(param - h.lr / s.correction1 * (exp_avg / exp_inf), State(exp_avg, exp_inf));
}
