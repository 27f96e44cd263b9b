"""AdaBelief."""

from __future__ import annotations

from typing import Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule

__all__ = ["AdaBelief"]


@documented
class AdaBelief(Optimizer):
    """Adam with the variance of the gradient (Zhuang et al. 2020, arXiv:2010.07468), as `optax.adabelief`.

        exp_avg = beta1 exp_avg + (1 - beta1) g
        exp_avg_var = beta2 exp_avg_var + (1 - beta2) (g - exp_avg)² + eps
        param = param - lr exp_avg / (1 - beta1^t) / (sqrt(exp_avg_var / (1 - beta2^t)) + eps)

    The rectification of the authors' release is left out.

    Args:
        betas: decay of the averages.
        eps: added to the average and to its root.
        weight_decay: see the next.
        decoupled_weight_decay: the parameter shrinks by lr weight_decay param; otherwise an L2 penalty.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.AdaBelief([w], lr=0.9).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.0
    """

    rule = Rule("adabelief")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-16,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = True,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)
