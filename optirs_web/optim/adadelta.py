"""Adadelta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero

__all__ = ["Adadelta"]


@documented
class Adadelta(Optimizer):
    """An adaptive learning rate without one to tune (Zeiler 2012, arXiv:1212.5701), as `torch.optim.Adadelta`.

        square_avg = rho square_avg + (1 - rho) g²
        delta = sqrt(acc_delta + eps) / sqrt(square_avg + eps) g
        acc_delta = rho acc_delta + (1 - rho) delta²
        param = param - lr delta

    where g is the gradient (negated if `maximize`) plus weight_decay param.

    Args:
        lr: factor of each step; 1 in the paper.
        rho: decay of both averages, at most 1.
        eps: added within both roots; the first steps grow from it.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.Adadelta([w], rho=0.75, eps=1.0).step(grads=[[2.0]])
        >>> round(w.item(), 6)  # 1 - 2 / sqrt(2)
        -0.414214
    """

    rule = Rule("adadelta")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "rho")
        if group["rho"] > 1:
            raise ValueError(f"Invalid rho value: {group['rho']}")
