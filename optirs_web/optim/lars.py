"""LARS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero

__all__ = ["LARS"]


@documented
class LARS(Optimizer):
    """Layer-wise adaptive rate scaling (You et al. 2017, arXiv:1708.03888), algorithm 1 of the paper.

        ratio = trust_coefficient ‖param‖ / (‖g‖ + weight_decay ‖param‖ + eps)
        buffer = momentum buffer + lr ratio (g + weight_decay param)
        param = param - buffer

    with the norms of each tensor. The ratio is 1 where it would be 0 or has nothing to divide by, as in `optax.lars`,
    which otherwise differs with a weight decay: it divides by ‖g + weight_decay param‖.

    Args:
        momentum: 0 needs no state.
        weight_decay: L2 penalty, within the ratio.
        trust_coefficient: multiplies the ratio.
        eps: added to the ratio's denominator.
        nesterov: move by lr ratio (g + weight_decay param) + momentum buffer instead.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([4.0], device="cpu")
        >>> ow.optim.LARS([w], lr=0.5, trust_coefficient=0.5).step(grads=[[3.0]])
        >>> w.tolist()
        [3.0]
    """

    rule = Rule("lars")
    scalars_in_state = ()

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 1e-3,
        eps: float = 0.0,
        nesterov: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "trust_coefficient")
        if group["nesterov"] and group["momentum"] <= 0:
            raise ValueError("Nesterov momentum requires a momentum")
