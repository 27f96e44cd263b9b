// FTRL-Proximal (McMahan et al. 2013, "Ad Click Prediction: a View from the Trenches", algorithm 1). The paper's alpha
// is `lr`, z and n are `linear` and `accumulator`. The paper's parameters begin at 0; here z begins so that the term
// beta pulls to where they begin, which is the same there.

struct Hyper { lr: f32, beta: f32, lambda1: f32, lambda2: f32 }

struct Scalars { step: f32 }

struct State { linear: f32, accumulator: f32 }

struct Updated { param: f32, state: State }

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    let square = grad * grad;
    let n = state.accumulator + square;
    // (sqrt(n) - sqrt(state.accumulator)) / lr
    let sigma = select(square / (sqrt(n) + sqrt(state.accumulator)) / h.lr, 0.0, n == 0.0);
    let z_before = select(state.linear, -(h.beta / h.lr) * param, s.step == 1.0);
    let z = z_before + (grad - sigma * param);
    let strength = (h.beta + sqrt(n)) / h.lr + h.lambda2;
    let w = select(-(z - sign(z) * h.lambda1) / strength, 0.0, abs(z) <= h.lambda1);
    return Updated(w, State(z, n));
}
