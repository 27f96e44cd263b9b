// Accumulation over micro-batches: `weight` times each gradient is added to what is kept, and every `every`-th call steps.
// A call that is left out because of a gradient that is not finite does not count.

// calls is the number within the round, gathered that of those in which the tensor had a gradient.
struct Accumulate { every: f32, weight: f32, calls: f32, gathered: f32 }

fn accumulate_advance(h: Accumulate, live: f32) -> Accumulate {
    let is_over = h.calls >= h.every;
    return Accumulate(
        h.every,
        h.weight,
        select(h.calls + 1.0, 1.0, is_over),
        select(h.gathered, 0.0, is_over) + live,
    );
}

fn accumulate_closes(h: Accumulate) -> bool {
    return h.calls >= h.every;
}

fn accumulate(grad: f32, kept: f32, h: Accumulate) -> f32 {
    return kept + h.weight * grad;
}
