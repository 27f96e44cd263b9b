"""RAdam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule

__all__ = ["RAdam"]


@documented
class RAdam(Optimizer):
    """Rectified Adam (Liu et al. 2020, arXiv:1908.03265), as `torch.optim.RAdam`.

        rho_inf = 2 / (1 - beta2) - 1
        rho = rho_inf - 2 t beta2^t / (1 - beta2^t)
        r = sqrt((rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho))
        m = exp_avg / (1 - beta1^t)
        param = param - lr m r sqrt(1 - beta2^t) / (sqrt(exp_avg_sq) + eps) where rho > 5, otherwise param - lr m

    with Adam's exp_avg and exp_avg_sq; g is the gradient (negated if `maximize`) plus weight_decay param. The paper
    rectifies where rho > 4, torch where rho > 5, and torch adds eps before the bias correction.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.RAdam([w], lr=0.25).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.25
    """

    rule = Rule("radam")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        rho_inf = 2 / (1 - float(group["betas"][1])) - 1
        rectification_inf = rho_inf / ((rho_inf - 4) * (rho_inf - 2)) if rho_inf > 5 else 0.0
        return super().hyper({**group, "rho_inf": rho_inf, "rectification_inf": rectification_inf})
