// Averaged stochastic gradient descent (Polyak & Juditsky 1992), with the schedules of Bottou's SGD (2012, "Stochastic
// Gradient Descent Tricks", section 5.1) and the semantics of torch.optim.ASGD.
import package::lib::math::{log1p, precise_exp};

struct Hyper { lr: f32, lambd: f32, alpha: f32, t0: f32, weight_decay: f32 }

// `eta` and `mu` are those of the next step, as torch's state has them; `current_` those of this one.
struct Scalars { step: f32, eta: f32, mu: f32, current_eta: f32, current_mu: f32 }

struct State { ax: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let is_first = s.step == 0.0;
    let step = s.step + 1.0;
    let eta = h.lr * precise_exp(-h.alpha * log1p(h.lambd * h.lr * step));
    let mu = 1.0 / max(1.0, step - h.t0);
    return Scalars(step, eta, mu, select(s.eta, h.lr, is_first), select(s.mu, 1.0, is_first));
}

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let g = grad + h.weight_decay * param;
    let new_param = param - s.current_eta * (h.lambd * param + g);
    let ax = select(state.ax + s.current_mu * (new_param - state.ax), new_param, s.current_mu == 1.0);
    return Updated(new_param, State(ax));
}

fn eval(state: State) -> Updated {
    return Updated(state.ax, state);
}
