"""Adam-mini."""

from __future__ import annotations

from typing import Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule

__all__ = ["AdamMini"]


@documented
class AdamMini(Optimizer):
    """Adam-mini (Zhang et al. 2024, arXiv:2406.16793): AdamW with one second moment for each tensor.

        exp_avg = beta1 exp_avg + (1 - beta1) g
        exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) mean(g²)
        param = param - lr (exp_avg / (1 - beta1^t) / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps) + weight_decay param)

    A block of the paper is a tensor here, as in its partition by PyTorch's default. It takes smaller blocks for
    Transformers, such as a head of an attention or a row of an embedding: what should be a block of its own has to be a
    parameter of its own.

    Args:
        betas: decay of the averages of the gradient and of its mean square.
        weight_decay: decoupled.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0, 1.0], device="cpu")
        >>> ow.optim.AdamMini([w], lr=1.25).step(grads=[[1.0, 7.0]])
        >>> [round(value, 6) for value in w.tolist()]
        [0.75, -0.75]
    """

    rule = Rule("adam_mini")
    scalars_in_state = ("step", "exp_avg_sq")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)
