"""LAMB."""

from __future__ import annotations

from typing import Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule

__all__ = ["LAMB"]


@documented
class LAMB(Optimizer):
    """Layer-wise adaptive moments for batch training (You et al. 2020, arXiv:1904.00962), as `optax.lamb`.

        u = Adam's step without lr + weight_decay param
        param = param - lr (‖param‖ / ‖u‖) u

    with the norms of each tensor; the ratio is 1 where one of them is 0.

    Args:
        weight_decay: decoupled, within the ratio.
        bias_correction: of the averages.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([4.0], device="cpu")
        >>> ow.optim.LAMB([w], lr=0.25).step(grads=[[3.0]])
        >>> w.tolist()
        [3.0]
    """

    rule = Rule("lamb")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        bias_correction: bool = True,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)
