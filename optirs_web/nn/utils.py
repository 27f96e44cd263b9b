"""What torch.nn.utils has and stands in `optim` here."""

from ..optim import clip_grad_norm_, clip_grad_value_

__all__ = ["clip_grad_norm_", "clip_grad_value_"]
