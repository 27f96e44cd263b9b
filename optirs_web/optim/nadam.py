"""NAdam."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero

__all__ = ["NAdam"]


@documented
class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat 2016, "Incorporating Nesterov Momentum into Adam"), as `torch.optim.NAdam`.

        mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2)
        mu_product = mu_1 mu_2 ... mu_t
        m = (1 - mu_t) / (1 - mu_product) g + mu_(t+1) / (1 - mu_product mu_(t+1)) exp_avg
        param = param - lr m / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps)

    with Adam's exp_avg and exp_avg_sq; g is the gradient (negated if `maximize`) plus weight_decay param. optax's
    `nadam` has no schedule of mu and is another rule.

    Args:
        momentum_decay: how fast mu grows from beta1 / 2 to beta1.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.NAdam([w], lr=0.5, betas=(0.0, 0.999)).step(grads=[[3.0]])
        >>> w.tolist()
        [0.5]
    """

    rule = Rule("nadam")
    scalars_in_state = ("step", "mu_product")

    def __init__(
        self,
        params: Params,
        lr: Rate = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "momentum_decay")

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        return super().hyper({**group, "mu_exponent": group["momentum_decay"] * math.log(0.96)})
