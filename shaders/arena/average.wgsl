// Averages of parameters beside them: exponential moving (bias-corrected as in Kingma & Ba 2015), of equal weights (Polyak &
// Juditsky 1992; SWA, Izmailov et al. 2018, arXiv:1803.05407), and of polynomially growing ones (Shamir & Zhang 2013,
// arXiv:1212.1824). The new average is the old one and `weight` times what the parameter differs from it.
import package::lib::math::expm1;

const POLYNOMIAL: f32 = 0.0;
const EXPONENTIAL: f32 = 1.0;
const CORRECTED: f32 = 2.0;

// kind is one of these, otherwise exponential with a decay of at most (1 + t) / (10 + t).
struct Hyper { kind: f32, power: f32, one_minus_decay: f32, log_decay: f32 }

struct Scalars { step: f32, weight: f32 }

struct State { average: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    let polynomial = (h.power + 1.0) / (step + h.power);
    let corrected = h.one_minus_decay / -expm1(step * h.log_decay);
    let warm = max(h.one_minus_decay, 9.0 / (10.0 + step));
    var weight = warm;
    if h.kind == POLYNOMIAL {
        weight = polynomial;
    }
    if h.kind == EXPONENTIAL {
        weight = h.one_minus_decay;
    }
    if h.kind == CORRECTED {
        weight = corrected;
    }
    // The first average is the parameter.
    return Scalars(step, select(weight, 1.0, step == 1.0));
}

fn update(param: f32, state: State, s: Scalars) -> Updated {
    let average = select(state.average + s.weight * (param - state.average), param, s.weight == 1.0);
    return Updated(param, State(average));
}

// Both exchange them.
fn eval(param: f32, state: State) -> Updated {
    return Updated(state.average, State(param));
}
