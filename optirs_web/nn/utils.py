"""Functions of torch.nn.utils, which are defined in `optim`."""

from ..optim import clip_grad_norm_, clip_grad_value_

__all__ = ["clip_grad_norm_", "clip_grad_value_"]
