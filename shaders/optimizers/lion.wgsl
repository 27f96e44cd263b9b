// Lion (Chen et al. 2023, arXiv:2302.06675, algorithm 2). Where both decays are equal it is Signum (Bernstein et al.
// 2018, arXiv:1802.04434, algorithm 2), and without an average signSGD (algorithm 1 there).
override use_momentum: bool = true;

struct Hyper {
    lr: f32,
    beta1: f32,
    one_minus_beta1: f32,
    one_minus_beta2: f32,
    weight_decay: f32,
}

struct State { exp_avg: f32 }

struct Updated { param: f32, state: State }

fn update(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    var direction = grad;
    if use_momentum {
        direction = h.beta1 * state.exp_avg + h.one_minus_beta1 * grad;
    }
    let exp_avg = state.exp_avg + h.one_minus_beta2 * (grad - state.exp_avg);
    return Updated(param - h.lr * (h.weight_decay * param + sign(direction)), State(exp_avg));
}
