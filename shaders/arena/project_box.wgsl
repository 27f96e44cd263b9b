// Projection onto a box: each element to [lower, upper]. NaN stays NaN.
import package::lib::math::is_nan;

struct Hyper { lower: f32, upper: f32 }

struct Updated { param: f32 }

fn update(param: f32, h: Hyper) -> Updated {
    return Updated(select(clamp(param, h.lower, h.upper), param, is_nan(param)));
}
