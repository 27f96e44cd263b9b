// Clipping by value: each element to [-limit, limit], as torch.nn.utils.clip_grad_value_. NaN stays NaN.
import package::lib::math::is_nan;

struct ClipByValue { limit: f32 }

fn clip_by_value(grad: f32, h: ClipByValue) -> f32 {
    return select(clamp(grad, -h.limit, h.limit), grad, is_nan(grad));
}
