"""D-Adaptation of SGD, AdaGrad and Adam."""

from __future__ import annotations

import math
from typing import Unpack

from .arguments import documented, rule_options
from .distance import EstimatesDistance
from .optimizer import Options, Params, Rule

__all__ = ["DAdaptAdaGrad", "DAdaptAdam", "DAdaptSGD"]


@documented
class DAdaptSGD(EstimatesDistance):
    """Gradient descent by D-Adaptation (Defazio & Mishchenko 2023, arXiv:2301.07733), as `dadaptation.DAdaptSGD`.

        numerator = numerator + (d lr / ‖g0‖) ⟨g, s⟩
        s = s + (d lr / ‖g0‖) g
        param = momentum param + (1 - momentum) (x0 - s)
        d = max(d, 2 numerator / ‖s‖)

    where x0 is the initial param, g0 is the first gradient (without its decay), and g is the gradient plus weight_decay
    param. The product and the norms are over all tensors that have a gradient; d is one number for all, and all have
    it in their state.

    The options of d (`d0`, `growth_rate`) are those of the first group. A group has the learning rate of all others,
    or 0, which freezes it.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.DAdaptSGD([w], d0=0.5).step(grads=[[3.0]])
        >>> w.tolist()
        [0.5]
    """

    rule = Rule("dadapt_sgd", over_all=True)
    scalars_in_state = ("step", "d", "g0_norm", "numerator_weighted")

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        d0: float = 1e-6,
        growth_rate: float = math.inf,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)


@documented
class DAdaptAdaGrad(EstimatesDistance):
    """AdaGrad by D-Adaptation (Defazio & Mishchenko 2023, arXiv:2301.07733), as `dadaptation.DAdaptAdaGrad`.

        alphak = alphak + g², which begins as 1e-6
        sk = sk + d lr g
        param = momentum param + (1 - momentum) (x0 - sk / (sqrt(alphak) + eps))
        d = max(d, (‖sk‖² - Σ d² lr² ‖g‖²) / ‖sk‖₁)

    where x0 is the initial param, g is the gradient plus weight_decay param, and the squared norms are weighted by
    1 / (sqrt(alphak) + eps). The norms are over all tensors; d is one number for all, and all have it in their state.

    As for `DAdaptSGD`, the options of d are those of the first group, and the learning rate is that of all groups or 0.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.DAdaptAdaGrad([w], d0=0.5).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.5
    """

    rule = Rule("dadapt_adagrad", over_all=True)
    scalars_in_state = ("step", "d", "numerator_weighted", "skl1")

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        eps: float = 1e-6,
        d0: float = 1e-6,
        growth_rate: float = math.inf,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)


@documented
class DAdaptAdam(EstimatesDistance):
    """Adam by D-Adaptation (Defazio & Mishchenko 2023, arXiv:2301.07733), as `dadaptation.DAdaptAdam`.

        numerator = r numerator + (1 - r) d lr ⟨g, s / (sqrt(exp_avg_sq) + eps)⟩, with r = sqrt(beta2)
        s = r s + (1 - r) d lr g
        exp_avg = beta1 exp_avg + (1 - beta1) d lr g
        exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) g²
        param = param - exp_avg / (sqrt(exp_avg_sq) + eps)
        d = max(d, numerator / ((1 - r) ‖s‖₁))

    The product, made with s and exp_avg_sq before the step, and the norm are over all tensors that have a gradient; d
    is one number for all, and all have it in their state.

    The options of d (`betas`, `use_bias_correction`, `d0`, `growth_rate`) are those of the first group. A group has the
    learning rate of all others, or 0, which freezes it.

    Args:
        weight_decay: see `decouple`.
        decouple: decay the parameter itself, by d lr weight_decay param; otherwise through the gradient.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.DAdaptAdam([w], d0=0.5, use_bias_correction=True).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.5
    """

    rule = Rule("dadapt_adam", over_all=True)
    scalars_in_state = ("step", "k", "d", "numerator_weighted")
    options_of_d = ("betas", "use_bias_correction", "d0", "growth_rate")

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decouple: bool = False,
        use_bias_correction: bool = False,
        d0: float = 1e-6,
        growth_rate: float = math.inf,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)
