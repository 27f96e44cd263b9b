"""Yogi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero

__all__ = ["Yogi"]


@documented
class Yogi(Optimizer):
    """Adam whose second moment grows and shrinks additively (Zaheer et al. 2018), as `optax.yogi`.

        exp_avg = beta1 exp_avg + (1 - beta1) g
        exp_avg_sq = exp_avg_sq - (1 - beta2) sign(exp_avg_sq - g²) g²
        param = param - lr exp_avg / (1 - beta1^t) / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps)

    where g is the gradient (negated if `maximize`) plus weight_decay param. The paper, "Adaptive Methods for Nonconvex
    Optimization", has no bias correction.

    Args:
        initial_accumulator: the initial value of both averages.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.Yogi([w], lr=0.5, eps=0.0, initial_accumulator=0.0).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.5
    """

    rule = Rule("yogi")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-3,
        initial_accumulator: float = 1e-6,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "initial_accumulator")
