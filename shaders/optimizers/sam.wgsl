// Sharpness-aware minimization (Foret et al. 2021, arXiv:2010.01412, equation 2) and its adaptive form (Kwon et al. 2021,
// arXiv:2102.11600, equation 6): to the worst parameters within a distance, by the norm over all tensors.
override adaptive: bool = false;

const SMALL: f32 = 1e-12; // so that a gradient of zeros moves nothing

struct Hyper { rho: f32 }

struct Scalars { step: f32, scale: f32 }

struct State { old_param: f32 }

struct Updated { param: f32, state: State }

struct Measured { norm_sq: f32 }

fn advance(s: Scalars) -> Scalars {
    return Scalars(s.step + 1.0, s.scale);
}

fn measure(param: f32, grad: f32) -> Measured {
    var g = grad;
    if adaptive {
        g = param * g;
    }
    return Measured(g * g);
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    return Scalars(s.step, h.rho / (sqrt(measured.norm_sq) + SMALL));
}

fn update(param: f32, grad: f32, state: State, s: Scalars) -> Updated {
    var g = grad;
    if adaptive {
        g = param * param * g;
    }
    return Updated(param + s.scale * g, State(param));
}

fn restore(param: f32, state: State) -> Updated {
    return Updated(state.old_param, state);
}
