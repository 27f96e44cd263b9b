"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, Unpack

from ..errors import UnsupportedError
from .arguments import documented, rule_options
from .optimizer import LARGEST_FLOAT32, Optimizer, Options, Params, Rate, Rule
from .sparse_layout import SparseLayout

__all__ = ["SGD"]


@documented
class SGD(Optimizer):
    """Stochastic gradient descent, optionally with momentum, as `torch.optim.SGD`.

        buffer = g at the first step, then momentum buffer + (1 - dampening) g
        param = param - lr (g + momentum buffer if nesterov, otherwise buffer)

    where g is the gradient (negated if `maximize`) plus weight_decay param. A step with `SparseRows` changes these rows
    only; with momentum all rows that have had a gradient change, so that the gradient is made dense then.

    Args:
        momentum: 0 needs no state.
        dampening: of the gradient, from the second step on.
        nesterov: Nesterov's momentum (Sutskever et al. 2013).

    Raises:
        UnsupportedError: at a step with `SparseRows` and weight decay.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.SGD([w], lr=0.5).step(grads=[[1.0]])
        >>> w.tolist()
        [0.5]
    """

    rule = Rule("sgd")
    layout_type = SparseLayout
    scalars_in_state = ()

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        if not (isinstance(group["dampening"], Real) and abs(float(group["dampening"])) <= LARGEST_FLOAT32):
            raise ValueError(f"Invalid dampening value: {group['dampening']}")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")

    def changes_rows_alone(self, group: Mapping[str, Any]) -> bool:
        if self._flag(group, "use_weight_decay"):
            raise UnsupportedError("weight_decay option is not compatible with sparse gradients")
        return not self._flag(group, "use_momentum")
