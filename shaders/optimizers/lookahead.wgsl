// Lookahead (Zhang et al. 2019, arXiv:1907.08610, algorithm 1): every k steps of another optimizer the slow weights move
// towards the parameters by alpha, and the parameters go on from there.
struct Hyper { k: f32, alpha: f32 }

// slow_step counts from 1 to k.
struct Scalars { step: f32, slow_step: f32 }

struct State { slow_param: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    return Scalars(s.step + 1.0, select(s.slow_step + 1.0, 1.0, s.slow_step >= h.k));
}

fn update(param: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let moved = state.slow_param + h.alpha * (param - state.slow_param);
    let is_due = s.slow_step >= h.k;
    return Updated(select(param, moved, is_due), State(select(state.slow_param, moved, is_due)));
}
