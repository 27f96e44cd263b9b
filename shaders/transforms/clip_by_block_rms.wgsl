// Clipping by the root mean square of a tensor (Shazeer & Stern 2018, arXiv:1804.04235, section 6): the gradient is divided
// by max(1, rms / threshold), as in optax.
struct ClipByBlockRms { threshold: f32, divisor: f32 }

struct ClipByBlockRmsMeasured { total: f32 }

fn clip_by_block_rms_measure(grad: f32) -> ClipByBlockRmsMeasured {
    return ClipByBlockRmsMeasured(grad * grad);
}

fn clip_by_block_rms_settle(h: ClipByBlockRms, measured: ClipByBlockRmsMeasured, size: f32) -> ClipByBlockRms {
    return ClipByBlockRms(h.threshold, max(1.0, sqrt(measured.total / size) / h.threshold));
}

fn clip_by_block_rms(grad: f32, h: ClipByBlockRms) -> f32 {
    return grad / h.divisor;
}
