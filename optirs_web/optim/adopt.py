"""ADOPT."""

from __future__ import annotations

from typing import Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule

__all__ = ["ADOPT"]


@documented
class ADOPT(Optimizer):
    """Adam that converges for every beta2 (Taniguchi et al. 2024, arXiv:2411.02853), as `optax.contrib.adopt`.

        exp_avg_sq = g² at the first step, which does nothing else; from then on, with c = (t - 1)^(1/4),
        exp_avg = beta1 exp_avg + (1 - beta1) clip(g / max(sqrt(exp_avg_sq), eps), -c, c)
        param = param - lr exp_avg
        exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) g²

    Args:
        betas: decay of the averages of the normed gradient and of the gradient's square.
        eps: the least that the gradient is divided by.
        weight_decay: L2 penalty, or as the next says.
        decouple: shrink the parameter by lr weight_decay param instead.
        clipping: as above; without it the rule is that of the paper's first version.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> optimizer = ow.optim.ADOPT([w], lr=0.5, betas=(0.0, 0.9))
        >>> for _ in range(2):
        ...     optimizer.step(grads=[[3.0]])
        >>> w.tolist()
        [0.5]
    """

    rule = Rule("adopt")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.9999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        decouple: bool = False,
        clipping: bool = True,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)
