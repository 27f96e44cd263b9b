// Rprop (Riedmiller & Braun 1993), without backtracking (Igel & Hüsken 2000: iRprop-), with the semantics of
// torch.optim.Rprop.
struct Hyper { lr: f32, eta_minus: f32, eta_plus: f32, step_size_min: f32, step_size_max: f32 }

struct Scalars { step: f32 }

struct State { prev: f32, step_size: f32 }

struct Updated { param: f32, state: State }

fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated {
    // The product of the gradients themselves may underflow.
    let agreement = sign(grad) * sign(state.prev);
    let eta = select(select(1.0, h.eta_plus, agreement > 0.0), h.eta_minus, agreement < 0.0);
    let previous_size = select(state.step_size, h.lr, s.step == 1.0);
    // torch clamps a size that stays as it is, too.
    let step_size = min(max(previous_size * eta, h.step_size_min), h.step_size_max);
    // After a change of sign the parameter rests for a step, and the next one compares with nothing.
    let g = select(grad, 0.0, agreement < 0.0);
    return Updated(param - step_size * sign(g), State(g, step_size));
}
