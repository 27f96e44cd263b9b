// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon), with the semantics of torch.optim: momentum,
// orthogonalised by a Newton-Schulz iteration, which `optim/muon.py` makes of products between `prepare` and `update`.
override nesterov: bool = true;

// a, b and c are the coefficients of the iteration; rows and columns those of the tensor.
struct Hyper {
    lr: f32,
    weight_decay: f32,
    momentum: f32,
    one_minus_momentum: f32,
    a: f32,
    b: f32,
    c: f32,
    eps: f32,
    match_rms_adamw: f32,
    rows: f32,
    columns: f32,
}

// What the first iteration multiplies with, which begins with the direction divided by its norm: its inverse, the square
// of that, and a times it.
struct Scalars { step: f32, lr_ratio: f32, inverse_norm: f32, inverse_norm_sq: f32, first_a: f32 }

// The direction is orthogonalised in place.
struct State { momentum_buffer: f32, direction: f32 }

struct Updated { param: f32, state: State }

struct Measured { direction_sq: f32 }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let original = sqrt(max(1.0, h.rows / h.columns));
    let match_rms_adamw = 0.2 * sqrt(max(h.rows, h.columns));
    return Scalars(s.step + 1.0, select(original, match_rms_adamw, h.match_rms_adamw != 0.0), 0.0, 0.0, 0.0);
}

fn prepare(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    let momentum_buffer = state.momentum_buffer + h.one_minus_momentum * (grad - state.momentum_buffer);
    var direction = momentum_buffer;
    if nesterov {
        direction = grad + h.momentum * (momentum_buffer - grad);
    }
    return Updated(param, State(momentum_buffer, direction));
}

fn measure(state: State) -> Measured {
    return Measured(state.direction * state.direction);
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    let inverse_norm = 1.0 / max(sqrt(measured.direction_sq), h.eps);
    return Scalars(s.step, s.lr_ratio, inverse_norm, inverse_norm * inverse_norm, h.a * inverse_norm);
}

fn update(param: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    return Updated(param - h.lr * (h.weight_decay * param + s.lr_ratio * state.direction), state);
}
