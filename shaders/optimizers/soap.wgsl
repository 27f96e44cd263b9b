// SOAP (Vyas et al. 2024, arXiv:2409.11321, algorithm 3): Adam in the eigenbasis of Shampoo's preconditioners. Between
// `prepare` and `adapt` `optim/soap.py` turns the gradient into that basis; between `adapt` and `update`, the step back.
import package::lib::cycle::cycle;
import package::lib::math::expm1;

override correct_bias: bool = true;

// The products know shampoo_beta; rows and columns are those of the tensor.
struct Hyper {
    lr: f32,
    beta1: f32,
    one_minus_beta1: f32,
    log_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    log_beta2: f32,
    shampoo_beta: f32,
    one_minus_shampoo_beta: f32,
    eps: f32,
    weight_decay: f32,
    precondition_frequency: f32,
    rows: f32,
    columns: f32,
}

// first and refresh are 1 in the steps that make the basis, and bring it up to date.
struct Scalars { step: f32, first: f32, refresh: f32, correction: f32 }

struct State { exp_avg: f32, exp_avg_sq: f32, direction: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    // The first step only makes the basis, and Adam does not count it.
    let count = max(s.step, 1.0);
    let correction = sqrt(-expm1(count * h.log_beta2)) / -expm1(count * h.log_beta1);
    let is_due = s.step > 0.0 && cycle(s.step, h.precondition_frequency).at == 0.0;
    return Scalars(s.step + 1.0, select(0.0, 1.0, s.step == 0.0), select(0.0, 1.0, is_due), correction);
}

fn prepare(param: f32, grad: f32, state: State) -> Updated {
    return Updated(param, State(state.exp_avg, state.exp_avg_sq, grad));
}

fn adapt(param: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let g = state.direction;
    let exp_avg = state.exp_avg + h.one_minus_beta1 * (g - state.exp_avg);
    let exp_avg_sq = h.beta2 * state.exp_avg_sq + h.one_minus_beta2 * g * g;
    var direction = exp_avg / (sqrt(exp_avg_sq) + h.eps);
    if correct_bias {
        direction = s.correction * direction;
    }
    let is_first = s.first != 0.0;
    return Updated(
        param,
        State(select(exp_avg, 0.0, is_first), select(exp_avg_sq, 0.0, is_first), select(direction, 0.0, is_first))
    );
}

fn update(param: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let moved = param - h.lr * state.direction;
    return Updated(select(moved - h.lr * h.weight_decay * moved, param, s.first != 0.0), state);
}
