// Clipping by the norm of a tensor, or of all (Pascanu et al. 2013, arXiv:1211.5063), with the factor of
// torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)).

// norm_type is 2, 1, or 0 for the largest magnitude.
struct ClipByNorm { max_norm: f32, norm_type: f32, factor: f32 }

struct ClipByNormMeasured { total: f32, max_magnitude: f32 }

fn clip_by_norm_measure(grad: f32, h: ClipByNorm) -> ClipByNormMeasured {
    let magnitude = abs(grad);
    return ClipByNormMeasured(select(magnitude, magnitude * magnitude, h.norm_type == 2.0), magnitude);
}

fn clip_by_norm_total(measured: ClipByNormMeasured, norm_type: f32) -> f32 {
    let sum = select(measured.total, sqrt(measured.total), norm_type == 2.0);
    return select(sum, measured.max_magnitude, norm_type == 0.0);
}

fn clip_by_norm_settle(h: ClipByNorm, measured: ClipByNormMeasured) -> ClipByNorm {
    let norm = clip_by_norm_total(measured, h.norm_type);
    return ClipByNorm(h.max_norm, h.norm_type, min(1.0, h.max_norm / (norm + 1e-6)));
}

fn clip_by_norm(grad: f32, h: ClipByNorm) -> f32 {
    return grad * h.factor;
}
