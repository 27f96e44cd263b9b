// Projection of a tensor onto the Euclidean ball, or the sphere, of this radius around 0.
override sphere: bool = false;

struct Hyper { radius: f32 }

struct Scalars { step: f32, factor: f32 }

struct Measured { total: f32 }

struct Updated { param: f32 }

fn advance(s: Scalars) -> Scalars {
    return Scalars(s.step + 1.0, 1.0);
}

fn measure(param: f32) -> Measured {
    return Measured(param * param);
}

fn settle(s: Scalars, measured: Measured, h: Hyper) -> Scalars {
    let norm = sqrt(measured.total);
    return Scalars(s.step, select(1.0, h.radius / norm, norm > 0.0));
}

fn update(param: f32, s: Scalars) -> Updated {
    var factor = s.factor;
    if !sphere {
        factor = min(factor, 1.0);
    }
    return Updated(param * factor);
}
