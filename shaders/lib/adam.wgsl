// Adam's moments and step (Kingma and Ba 2015, arXiv:1412.6980) for the kernels of projected gradients.
struct Adam {
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    eps: f32,
    correction1: f32,
    correction2: f32,
}

struct Moments { first: f32, second: f32 }

fn next_moments(old: Moments, g: f32, adam: Adam) -> Moments {
    let first = old.first + adam.one_minus_beta1 * (g - old.first);
    return Moments(first, adam.beta2 * old.second + adam.one_minus_beta2 * g * g);
}

fn adam_step(moments: Moments, adam: Adam) -> f32 {
    return moments.first / adam.correction1 / (sqrt(moments.second / adam.correction2) + adam.eps);
}
