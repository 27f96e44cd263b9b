// Adaptive gradient clipping (Brock et al. 2021, arXiv:2102.06171): the norm of a unit's gradient is at most `clipping` times
// the norm of its weights, where these count as `eps` at least. A unit is an output row.
struct AdaptiveClip { clipping: f32, eps: f32 }

struct AdaptiveClipMeasured { grad_sq: f32, param_sq: f32 }

fn adaptive_clip_measure(grad: f32, param: f32) -> AdaptiveClipMeasured {
    return AdaptiveClipMeasured(grad * grad, param * param);
}

fn adaptive_clip_settle(h: AdaptiveClip, measured: AdaptiveClipMeasured) -> f32 {
    let grad_norm = sqrt(measured.grad_sq);
    let max_norm = h.clipping * max(sqrt(measured.param_sq), h.eps);
    return select(max_norm / max(grad_norm, 1e-6), 1.0, grad_norm < max_norm);
}

fn adaptive_clip(grad: f32, row: f32) -> f32 {
    return grad * row;
}
