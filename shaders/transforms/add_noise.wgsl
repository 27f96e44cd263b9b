// Gradient noise (Neelakantan et al. 2015, arXiv:1511.06807): Gaussian, of variance eta / (1 + t)^gamma. Element `index` of
// tensor `tensor` gets the same number on every device.
import package::elementwise::random::random_normal;
import package::lib::math::precise_pow;

// draw counts the calls, as u32 in the bits of a random number's stream.
struct AddNoise { eta: f32, gamma: f32, seed: u32, draw: u32, deviation: f32 }

fn add_noise_advance(h: AddNoise) -> AddNoise {
    let draw = h.draw + 1u;
    return AddNoise(h.eta, h.gamma, h.seed, draw, sqrt(h.eta * precise_pow(f32(draw), -h.gamma)));
}

fn add_noise(grad: f32, index: u32, tensor: u32, h: AddNoise) -> f32 {
    return grad + h.deviation * random_normal(index, h.seed, tensor, h.draw);
}
