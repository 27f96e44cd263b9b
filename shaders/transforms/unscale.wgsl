// Division by the scale of the loss (Micikevicius et al. 2018, arXiv:1710.03740), which lies on the device.
struct Unscale { inverse: f32 }

fn unscale_advance(scale: f32) -> Unscale {
    return Unscale(1.0 / scale);
}

fn unscale(grad: f32, h: Unscale) -> f32 {
    return grad * h.inverse;
}
