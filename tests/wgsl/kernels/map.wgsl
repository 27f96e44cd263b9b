// A rule such as the optimizers have: pure functions over scalars, with flags, an import and a counted loop.
import package::lib::math::{expm1, precise_tanh};

override nesterov: bool = false;
override terms: u32 = 4u;

struct Hyper { lr: f32, momentum: f32 }
struct State { velocity: f32, age: u32 }
struct Updated { param: f32, state: State }

const SLOPES: f32 = 1.0 / 3.0;

fn series(x: f32) -> f32 {
    var sum = 0.0;
    var term = 1.0;
    for (var i = 1u; i <= terms; i++) {
        term *= x / f32(i);
        if (abs(term) < 1e-12) {
            break;
        }
        sum += term;
    }
    return sum;
}

fn update(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    var velocity = h.momentum * state.velocity + grad;
    let squashed = precise_tanh(velocity) * SLOPES;
    if (nesterov) {
        let squashed = grad + h.momentum * velocity;
        return Updated(param - h.lr * squashed, State(velocity, state.age + 1));
    } else if (state.age == 0u) {
        velocity = expm1(grad) - series(grad);
    }
    return Updated(param - h.lr * squashed, State(velocity, state.age + 1));
}
