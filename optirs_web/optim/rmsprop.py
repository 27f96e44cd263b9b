"""RMSprop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero

__all__ = ["RMSprop"]


@documented
class RMSprop(Optimizer):
    """Division by the root of the mean square of recent gradients (Hinton 2012, lecture 6.5), as `torch.optim.RMSprop`.

        square_avg = alpha square_avg + (1 - alpha) g²
        grad_avg = alpha grad_avg + (1 - alpha) g
        step = g / (sqrt(square_avg - (grad_avg² if centered)) + eps)
        buffer = momentum buffer + step
        param = param - lr (buffer if momentum, otherwise step)

    where g is the gradient (negated if `maximize`) plus weight_decay param. The difference under the root is at least
    0 here; in torch it may round to less, which makes the parameter NaN.

    Args:
        alpha: decay of the averages.
        momentum: of the steps; 0 needs no state.
        centered: divide by the standard deviation (Graves 2013, arXiv:1308.0850).

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.RMSprop([w], lr=0.25, alpha=0.75).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.5
    """

    rule = Rule("rmsprop")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "alpha")
