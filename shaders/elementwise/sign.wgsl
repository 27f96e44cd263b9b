// 1, 0 or -1; 0 for NaN, as in torch.
import package::lib::math::is_nan;

fn sign_(x: f32) -> f32 {
    return select(select(-1.0, 1.0, x > 0.0), 0.0, x == 0.0 || is_nan(x));
}
