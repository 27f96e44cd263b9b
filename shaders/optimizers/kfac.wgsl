// K-FAC (Martens & Grosse 2015, arXiv:1503.05671): the gradient of a layer, multiplied with the inverses of both factors
// of its Fisher matrix. `optim/kfac.py` does that between `prepare` and `measure`. With momentum, and the step clipped by
// how much it changes what the model predicts (Ba, Grosse & Martens 2017, section 5).
import package::lib::cycle::cycle;

override use_momentum: bool = false;
override use_kl_clip: bool = true;

struct Hyper {
    lr: f32,
    momentum: f32,
    weight_decay: f32,
    damping: f32,
    one_minus_stat_decay: f32,
    kl_clip: f32,
    update_freq: f32,
}

// refresh is 1 in the steps that compute the inverses, which are the first and every `update_freq`-th after it; keep and
// take are the parts of old and new statistics; ridge is the damping of one factor, were both of one size.
struct Scalars { step: f32, refresh: f32, keep: f32, take: f32, ridge: f32, clipping: f32 }

// `measure` cannot ask for the gradient, since transforms in `prepare` use it up.
struct State { momentum_buffer: f32, direction: f32, gradient: f32 }

struct Measured { change: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let refresh = select(0.0, 1.0, cycle(s.step, h.update_freq).at == 0.0);
    let step = s.step + 1.0;
    let take = max(1.0 / step, h.one_minus_stat_decay);
    return Scalars(step, refresh, 1.0 - take, take, sqrt(h.damping + h.weight_decay), 1.0);
}

fn prepare(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    let gradient = grad + h.weight_decay * param;
    return Updated(param, State(state.momentum_buffer, gradient, gradient));
}

fn measure(state: State, h: Hyper) -> Measured {
    var change = 0.0;
    if use_kl_clip {
        change = h.lr * h.lr * state.direction * state.gradient;
    }
    return Measured(change);
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    // Without a bound `kl_clip` is the largest number. Its quotient with itself is not 1 everywhere: WGSL's divisions are
    // accurate for divisors up to 2^126, and NVIDIA's Vulkan driver returns 0 beyond.
    let change = abs(measured.change);
    let clipping = select(1.0, sqrt(h.kl_clip / change), change > h.kl_clip);
    // A tensor that has taken no step has no state; nothing else is needed any more.
    return Scalars(s.step, 0.0, 0.0, 0.0, 0.0, select(clipping, 0.0, s.step == 0.0));
}

fn update(param: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    var step = s.clipping * state.direction;
    if use_momentum {
        step = h.momentum * state.momentum_buffer + step;
    }
    return Updated(param - h.lr * step, State(step, state.direction, state.gradient));
}
