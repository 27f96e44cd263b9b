"""Cautious optimizers, which update only the elements whose step agrees in sign with the gradient."""

from __future__ import annotations

from typing import Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule

__all__ = ["CautiousAdamW", "CautiousLion"]


@documented
class CautiousAdamW(Optimizer):
    """AdamW with a mask (Liang et al. 2024, arXiv:2411.16085).

        mask = 1 where exp_avg g > 0, otherwise 0
        param = param - lr (mask / max(mean(mask), 0.001) u + weight_decay param)

    with u = exp_avg / (1 - beta1^t) / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps), as `torch.optim.AdamW`, and the mean
    over each tensor. The mask is scaled as in the authors' release; in the paper, by size / (sum(mask) + 1).

    Args:
        weight_decay: decoupled, and not masked.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0, 1.0], device="cpu")
        >>> ow.optim.CautiousAdamW([w], lr=0.25).step(grads=[[3.0, 0.0]])
        >>> [round(value, 6) for value in w.tolist()]
        [0.4975, 0.9975]
    """

    rule = Rule("cautious_adamw")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)


@documented
class CautiousLion(Optimizer):
    """Lion with a mask (Liang et al. 2024, arXiv:2411.16085).

        u = sign(beta1 exp_avg + (1 - beta1) g)
        mask = 1 where u g > 0, otherwise 0
        param = param - lr (mask size / (sum(mask) + 1) u + weight_decay param)
        exp_avg = beta2 exp_avg + (1 - beta2) g

    where size and sum are those of each tensor.

    Args:
        betas: decay of the average within the sign, and of the one that is kept.
        weight_decay: decoupled, and not masked.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0, 1.0], device="cpu")
        >>> ow.optim.CautiousLion([w], lr=0.25).step(grads=[[3.0, 0.0]])
        >>> w.tolist()
        [0.75, 1.0]
    """

    rule = Rule("cautious_lion")
    scalars_in_state = ()

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)
