// Adam (Kingma & Ba 2015, arXiv:1412.6980) for the rows that a gradient has, with the semantics of torch.optim.SparseAdam.
import package::lib::math::expm1;

// log_beta and one_minus_beta are rounded once, from float64; log_beta is at least -100.
struct Hyper { lr: f32, one_minus_beta1: f32, log_beta1: f32, one_minus_beta2: f32, log_beta2: f32, eps: f32 }

struct Scalars { step: f32, step_size: f32 }

struct State { exp_avg: f32, exp_avg_sq: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    // 1 - beta^step, without the cancellation.
    return Scalars(step, h.lr * sqrt(-expm1(step * h.log_beta2)) / -expm1(step * h.log_beta1));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let exp_avg = state.exp_avg + h.one_minus_beta1 * (grad - state.exp_avg);
    let exp_avg_sq = state.exp_avg_sq + h.one_minus_beta2 * (grad * grad - state.exp_avg_sq);
    // Unlike Adam's, eps is added to the root before its bias is corrected.
    let step = exp_avg / (sqrt(exp_avg_sq) + h.eps);
    return Updated(param - s.step_size * step, State(exp_avg, exp_avg_sq));
}
