"""CAME."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from .arguments import documented, rule_options
from .factored import FactoredLayout
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero
from .options import two_epsilons

__all__ = ["CAME"]


class _Layout(FactoredLayout):
    row_names = ("exp_avg_sq_row", "exp_avg_res_row")
    column_names = ("exp_avg_sq_col", "exp_avg_res_col")
    vector_names: ClassVar[Mapping[str, str]] = {"exp_avg_sq_col": "exp_avg_sq"}
    more_state = (*row_names, *column_names, "exp_avg_sq")
    keeps_dimensions = False


@documented
class CAME(Optimizer):
    """Confidence-guided adaptive memory efficient optimization (Luo et al. 2023, arXiv:2307.02047).

        exp_avg_sq_row = beta2 exp_avg_sq_row + (1 - beta2) (mean of g² over the row + eps1), likewise exp_avg_sq_col
        u = g / sqrt(exp_avg_sq_row exp_avg_sq_col / mean of exp_avg_sq_row)
        u = u / max(1, RMS(u) / clip_threshold)
        exp_avg = beta1 exp_avg + (1 - beta1) u
        r = (u - exp_avg)²
        exp_avg_res_row = beta3 exp_avg_res_row + (1 - beta3) (mean of r over the row + eps2), likewise exp_avg_res_col
        s = exp_avg / sqrt(exp_avg_res_row exp_avg_res_col / mean of exp_avg_res_row)
        param = param - lr (weight_decay param + s)

    where g is the gradient (negated if `maximize`). As in the authors' code, a tensor of more than two dimensions is a
    stack of matrices in its last two, and one of fewer keeps the average of g² itself, as `exp_avg_sq`, and steps by
    exp_avg.

    Args:
        eps: eps1 and eps2.
        clip_threshold: the root mean square to which u is clipped.
        betas: decay of the averages of u, of the square of the gradient and of that of the residual.
        weight_decay: decoupled.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.CAME([w], lr=0.5).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.95
    """

    rule = Rule("came")
    layout_type = _Layout
    beta_count = 3

    def __init__(
        self,
        params: Params,
        lr: Rate = 2e-4,
        eps: tuple[float, float] = (1e-30, 1e-16),
        clip_threshold: float = 1.0,
        betas: tuple[float, float, float] = (0.9, 0.999, 0.9999),
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        for value in two_epsilons(group):
            at_least_zero({"eps": value}, "eps")
        super().validate({name: value for name, value in group.items() if name != "eps"})
        at_least_zero(group, "clip_threshold")
        if not group["clip_threshold"]:
            raise ValueError(f"Invalid clip_threshold value: {group['clip_threshold']}")

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        eps1, eps2 = two_epsilons(group)
        return super().hyper({**group, "eps1": eps1, "eps2": eps2})
