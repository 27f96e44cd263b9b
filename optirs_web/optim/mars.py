"""MARS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero

__all__ = ["MARS"]


@documented
class MARS(Optimizer):
    """AdamW with reduced variance (Yuan et al. 2024, arXiv:2411.10438): MARS-AdamW, approximate.

        c = g + gamma beta1 / (1 - beta1) (g - the gradient of the step before)
        c = c / max(‖c‖, 1), with the norm of each tensor

    and then AdamW's step with c in place of the gradient. As in the authors' release with `optimize_1d=True`, the
    gradient before the first is 0 and all tensors are treated alike.

    Args:
        betas: decay of the averages of c and of its square.
        weight_decay: decoupled.
        gamma: strength of the correction.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.MARS([w], lr=0.5).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.5
    """

    rule = Rule("mars")

    def __init__(
        self,
        params: Params,
        lr: Rate = 3e-3,
        betas: tuple[float, float] = (0.95, 0.99),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        gamma: float = 0.025,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "gamma")

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        beta1 = float(group["betas"][0])
        return super().hyper({**group, "gradient_scale": float(group["gamma"]) * beta1 / (1 - beta1)})
