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
    let roots = sqrt(n) + sqrt(state.accumulator);
    let sigma = select(square / roots / h.lr, 0.0, roots == 0.0);
    let z_before = select(state.linear, -(h.beta / h.lr) * param, s.step == 1.0);
    let z = z_before + (grad - sigma * param);
    let strength = (h.beta + sqrt(n)) / h.lr + h.lambda2;
    // Where nothing pulls, as with beta = 0 and gradients whose squares are 0 in float32, it stays.
    let pulled = select(-(z - sign(z) * h.lambda1) / strength, param, strength == 0.0);
    return Updated(select(pulled, 0.0, abs(z) <= h.lambda1), State(z, n));
}
