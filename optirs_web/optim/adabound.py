"""AdaBound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero

__all__ = ["AdaBound"]


@documented
class AdaBound(Optimizer):
    """Adam that turns into SGD (Luo et al. 2019, arXiv:1902.09843), as the authors' release.

        rate = lr sqrt(1 - beta2^t) / (1 - beta1^t) / (sqrt(exp_avg_sq) + eps)
        low, high = final_lr (1 - 1 / (gamma t + 1)), final_lr (1 + 1 / (gamma t))
        param = param - clip(rate, low, high) exp_avg

    with Adam's exp_avg and exp_avg_sq; g is the gradient (negated if `maximize`) plus weight_decay param. The paper has
    no bias correction, and divides the rate by sqrt(t). `final_lr` does not follow a schedule of `lr`.

    Args:
        lr: learning rate of Adam.
        final_lr: learning rate of SGD in the end.
        gamma: how fast the bounds close.
        amsbound: divide by the largest exp_avg_sq so far.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.AdaBound([w], lr=0.5).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.5
    """

    rule = Rule("adabound")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        final_lr: float = 0.1,
        gamma: float = 1e-3,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsbound: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "final_lr", "gamma")
        if not 0 < group["gamma"] < 1:
            raise ValueError(f"Invalid gamma value: {group['gamma']}")
