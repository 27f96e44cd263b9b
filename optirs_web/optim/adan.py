"""Adan."""

from __future__ import annotations

from typing import Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule

__all__ = ["Adan"]


@documented
class Adan(Optimizer):
    """Adaptive Nesterov momentum (Xie et al. 2022, arXiv:2208.06677), as the authors' release.

        d = g - the gradient of the step before, 0 at the first
        exp_avg = beta1 exp_avg + (1 - beta1) g
        exp_avg_diff = beta2 exp_avg_diff + (1 - beta2) d
        exp_avg_sq = beta3 exp_avg_sq + (1 - beta3) (g + beta2 d)²
        m = exp_avg / (1 - beta1^t) + beta2 exp_avg_diff / (1 - beta2^t)
        param = (param - lr m / (sqrt(exp_avg_sq / (1 - beta3^t)) + eps)) / (1 + lr weight_decay)

    The paper's betas are 1 less these. `optax.adan` differs: it multiplies d and exp_avg_diff by 1 - beta2, as if its
    betas were the paper's.

    Args:
        betas: decay of the averages of the gradient, of its change, and of the square.
        weight_decay: decoupled.
        no_prox: shrink by lr weight_decay param beforehand, as AdamW, instead of dividing afterwards.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.Adan([w], lr=0.5).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.5
    """

    rule = Rule("adan")
    beta_count = 3

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float, float] = (0.98, 0.92, 0.99),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        no_prox: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)
