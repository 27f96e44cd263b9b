// Clipping of gradients where they lie (`param` is one of them), with the factor of torch.nn.utils.clip_grad_norm_.
import package::transforms::clip_by_norm::{ClipByNorm, ClipByNormMeasured, clip_by_norm_measure, clip_by_norm_total};

struct Hyper { max_norm: f32, norm_type: f32 }

struct Scalars { step: f32, norm: f32, factor: f32 }

struct Measured { total: f32, max_magnitude: f32 }

struct Updated { param: f32 }

fn advance(s: Scalars) -> Scalars {
    return Scalars(s.step + 1.0, 0.0, 1.0);
}

fn measure(param: f32, h: Hyper) -> Measured {
    let measured = clip_by_norm_measure(param, ClipByNorm(h.max_norm, h.norm_type, 1.0));
    return Measured(measured.total, measured.max_magnitude);
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    let norm = clip_by_norm_total(ClipByNormMeasured(measured.total, measured.max_magnitude), h.norm_type);
    return Scalars(s.step, norm, min(1.0, h.max_norm / (norm + 1e-6)));
}

fn update(param: f32, s: Scalars) -> Updated {
    return Updated(param * s.factor);
}
