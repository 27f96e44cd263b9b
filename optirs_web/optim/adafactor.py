"""Adafactor."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar, Unpack

from .arguments import documented, rule_options
from .factored import FactoredLayout
from .optimizer import LARGEST_FLOAT32, Optimizer, Options, Params, Rate, Rule
from .options import two_epsilons

__all__ = ["Adafactor"]

_FLOAT32_EPS = 2.0**-23


class _Layout(FactoredLayout):
    row_names = ("row_var",)
    column_names = ("col_var",)
    vector_names: ClassVar[Mapping[str, str]] = {"col_var": "variance"}
    more_state = ("row_var", "col_var", "variance")


@documented
class Adafactor(Optimizer):
    """Adaptive steps with sublinear memory (Shazeer & Stern 2018, arXiv:1804.04235), as `torch.optim.Adafactor`.

        row_var = row_var + t^beta2_decay (mean of g² over the row - row_var), likewise col_var
        v = row_var col_var / max(mean of row_var, eps1)
        u = g / max(sqrt(v), eps1)
        alpha = max(eps2, RMS(param)) min(lr, 1 / sqrt(t))
        param = param - lr weight_decay param - alpha u / max(1, RMS(u) / d)

    where g is the gradient (negated if `maximize`). A tensor of more than two dimensions is a stack of matrices in its
    last two; one of fewer keeps v itself, as `variance`.

    Args:
        lr: largest relative step, and the factor of weight_decay.
        beta2_decay: exponent of t.
        eps: eps1 (None: the distance from 1 to the next float32) and eps2.
        d: the root mean square to which a step is clipped.
        weight_decay: decoupled.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[4.0, -4.0]], device="cpu")
        >>> ow.optim.Adafactor([w], lr=0.25).step(grads=[[[3.0, 3.0]]])
        >>> w.tolist()
        [[3.0, -5.0]]
    """

    rule = Rule("adafactor")
    layout_type = _Layout

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        eps1, eps2 = two_epsilons(group)
        checks = (
            ("Learning rate should be >= 0", group["lr"], 0.0, LARGEST_FLOAT32),
            ("beta2_decay should be <= 0", group["beta2_decay"], -LARGEST_FLOAT32, 0.0),
            ("epsilon1 should be >= 0", 0.0 if eps1 is None else eps1, 0.0, LARGEST_FLOAT32),
            ("epsilon2 should be >= 0", eps2, 0.0, LARGEST_FLOAT32),
            ("Clipping threshold d should be >= 1", group["d"], 1.0, LARGEST_FLOAT32),
            ("weight_decay should be >= 0", group["weight_decay"], 0.0, LARGEST_FLOAT32),
        )
        for what, value, lowest, highest in checks:
            if not (isinstance(value, Real) and lowest <= float(value) <= highest):
                raise ValueError(f"{what} but is: {value}")

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        eps1, eps2 = two_epsilons(group)
        eps1 = _FLOAT32_EPS if eps1 is None else float(eps1)
        return super().hyper({**group, "eps1": eps1, "eps1_squared": eps1 * eps1, "eps2": eps2})
