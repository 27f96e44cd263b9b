// Projection of a tensor onto the simplex { x >= 0, sum x = total }, or the ball { sum |x| <= total } (Duchi et al. 2008).
// Each element shrinks by a threshold: the root of sum max(x - threshold, 0) = total, which Newton's method nears from below
// (Michelot 1986), one step for each measure.
override ball: bool = false;

struct Hyper { total: f32 }

struct Scalars { step: f32, turn: f32, threshold: f32 }

struct Measured { sum: f32, count: f32 }

struct Updated { param: f32 }

fn advance(s: Scalars) -> Scalars {
    return Scalars(s.step + 1.0, 0.0, 0.0);
}

fn measure(param: f32, s: Scalars) -> Measured {
    var x = param;
    // The first step from below all elements counts each of them.
    var is_above = s.turn == 0.0 || param > s.threshold;
    if ball {
        x = abs(param);
        is_above = x > s.threshold;
    }
    return Measured(select(0.0, x - s.threshold, is_above), select(0.0, 1.0, is_above));
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    var threshold = s.threshold + (measured.sum - h.total) / max(measured.count, 1.0);
    if ball {
        threshold = max(threshold, s.threshold);
    }
    return Scalars(s.step, s.turn + 1.0, threshold);
}

fn update(param: f32, s: Scalars) -> Updated {
    var projected = max(param - s.threshold, 0.0);
    if ball {
        projected = sign(param) * max(abs(param) - s.threshold, 0.0);
    }
    return Updated(projected);
}
