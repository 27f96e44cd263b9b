"""SM3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from .arguments import documented, rule_options
from .factored import FactoredLayout
from .optimizer import Optimizer, Options, Params, Rate, Rule, fractions

__all__ = ["SM3"]


class _Layout(FactoredLayout):
    row_names = ("mu_row",)
    column_names = ("mu_col",)
    vector_names: ClassVar[Mapping[str, str]] = {"mu_col": "mu"}
    more_state = ("mu_row", "mu_col", "mu")
    updates_first = True


@documented
class SM3(Optimizer):
    """Square-root of minima of sums of maxima of squares (Anil et al. 2019, arXiv:1901.11150), as `optax.sm3`.

        nu = min(mu_row, mu_col) + g²
        mu_row = largest nu of the row, likewise mu_col
        momentum_buffer = momentum momentum_buffer + (1 - momentum) g / sqrt(nu + eps)
        param = param - lr momentum_buffer

    where g is the gradient (negated if `maximize`). A vector keeps nu itself, as `mu`. A tensor of more than two
    dimensions is a stack of matrices in its last two, each with rows and columns of its own; optax has one mu for each
    index of each dimension.

    Args:
        momentum: decay of the average of the scaled gradients; 0 for none.
        eps: added to nu under the root.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[4.0, 2.0]], device="cpu")
        >>> ow.optim.SM3([w], lr=0.5, momentum=0.0).step(grads=[[[3.0, 0.0]]])
        >>> w.tolist()
        [[3.5, 2.0]]
    """

    rule = Rule("sm3")
    layout_type = _Layout
    scalars_in_state = ()

    def __init__(
        self,
        params: Params,
        lr: Rate = 0.1,
        momentum: float = 0.9,
        eps: float = 1e-8,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        fractions(group, "momentum")
