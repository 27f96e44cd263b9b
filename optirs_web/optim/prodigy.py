"""Prodigy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .distance import EstimatesDistance
from .optimizer import Options, Params, Rule, at_least_zero, fractions

__all__ = ["Prodigy"]


@documented
class Prodigy(EstimatesDistance):
    """Prodigy (Mishchenko & Defazio 2023, arXiv:2306.06101): Adam that estimates its learning rate, as `prodigyopt`.

        numerator = beta3 numerator + (d / d0) d lr ⟨g, p0 - param⟩
        s = beta3 s + (d / d0) d lr g
        exp_avg = beta1 exp_avg + (1 - beta1) d g
        exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) d² g²
        param = param - d lr (exp_avg / (sqrt(exp_avg_sq) + d' eps) + weight_decay param)

    where p0 is the initial param, and d' = max(d, d_coef numerator / ‖s‖₁) is the d of the next step. The product and
    the norm are over all tensors that have a gradient; d is one number for all, and all have it in their state.

    The options of d (`betas`, `beta3`, `use_bias_correction`, `d0`, `d_coef`, `growth_rate`) are those of the first
    group. A group has the learning rate of all others, or 0, which freezes it.

    Args:
        beta3: decay of the sums that make d; sqrt(beta2) if None.
        eps: added to the root, times d.
        weight_decay: see `decouple`.
        decouple: decay the parameter itself, as AdamW; otherwise through the gradient.
        safeguard_warmup: omit lr in s, for schedules that begin with a warm-up.
        d_coef: multiplies the estimate; 0.5 or 2 for a smaller or a larger d.
        growth_rate: d grows at most by this factor in a step, from the second rise on.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.Prodigy([w], d0=0.5, use_bias_correction=True).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.5
    """

    rule = Rule("prodigy", over_all=True)
    scalars_in_state = ("step", "k", "d", "d_max", "d_numerator")
    options_of_d = ("betas", "beta3", "use_bias_correction", "d0", "d_coef", "growth_rate")

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.999),
        beta3: float | None = None,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decouple: bool = True,
        use_bias_correction: bool = False,
        safeguard_warmup: bool = False,
        d0: float = 1e-6,
        d_coef: float = 1.0,
        growth_rate: float = math.inf,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "d_coef")
        if group["beta3"] is not None:
            fractions(group, "beta3")
