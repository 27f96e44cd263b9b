"""Adamax."""

from __future__ import annotations

from typing import Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule

__all__ = ["Adamax"]


@documented
class Adamax(Optimizer):
    """Adam with the infinity norm (Kingma & Ba 2015, arXiv:1412.6980, section 7.1), as `torch.optim.Adamax`.

        exp_avg = beta1 exp_avg + (1 - beta1) g
        exp_inf = max(beta2 exp_inf, |g| + eps)
        param = param - lr / (1 - beta1^t) exp_avg / exp_inf

    where g is the gradient (negated if `maximize`) plus weight_decay param.

    Args:
        betas: decay of the average of the gradient and of the largest gradient.
        eps: added to the size of the gradient.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.Adamax([w], lr=0.5).step(grads=[[3.0]])
        >>> w.tolist()
        [0.5]
    """

    rule = Rule("adamax")

    def __init__(
        self,
        params: Params,
        lr: Rate = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)
