// L2 penalty through the gradient, as optax.add_decayed_weights.
struct AddDecayedWeights { weight_decay: f32 }

fn add_decayed_weights(grad: f32, param: f32, h: AddDecayedWeights) -> f32 {
    return grad + h.weight_decay * param;
}
