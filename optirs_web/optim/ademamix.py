"""AdEMAMix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero

__all__ = ["AdEMAMix"]


@documented
class AdEMAMix(Optimizer):
    """AdamW with a second, slow average (Pagliardini et al. 2024, arXiv:2409.03137), as `optax.contrib.ademamix`.

        exp_avg_fast = beta1 exp_avg_fast + (1 - beta1) g
        exp_avg_slow = beta3(t) exp_avg_slow + (1 - beta3(t)) g
        exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) g²
        u = (exp_avg_fast / (1 - beta1^t) + alpha(t) exp_avg_slow) / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps)
        param = param - lr (u + weight_decay param)

    with the paper's schedules, until t reaches the number of steps T of each:

        alpha(t) = alpha t / T
        log beta3(t) = log beta1 log beta3 / ((1 - t / T) log beta3 + (t / T) log beta1)

    Args:
        betas: decay of the fast average, of the square's, and of the slow average.
        alpha: weight of the slow average.
        beta3_warmup: steps of beta3's schedule; None has none. With beta1 = 0 it begins at exp(-100).
        alpha_warmup: steps of alpha's schedule; None has none.
        weight_decay: decoupled.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.AdEMAMix([w], lr=0.5, alpha=0.0).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.5
    """

    rule = Rule("ademamix")
    beta_count = 3

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float, float] = (0.9, 0.999, 0.9999),
        alpha: float = 2.0,
        beta3_warmup: int | None = None,
        alpha_warmup: int | None = None,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "alpha")
        at_least_zero(group, *(name for name in ("beta3_warmup", "alpha_warmup") if group[name] is not None))

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        warmups = {name: group[name] or 0 for name in ("beta3_warmup", "alpha_warmup")}
        return super().hyper({**group, **warmups})
