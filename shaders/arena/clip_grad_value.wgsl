// Clipping of gradients where they lie (`param` is one of them), as torch.nn.utils.clip_grad_value_.
import package::transforms::clip_by_value::{ClipByValue, clip_by_value};

struct Hyper { limit: f32 }

struct Updated { param: f32 }

fn update(param: f32, h: Hyper) -> Updated {
    return Updated(clip_by_value(param, ClipByValue(h.limit)));
}
