"""Adagrad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from ..errors import UnsupportedError
from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero
from .sparse_layout import SparseLayout

__all__ = ["Adagrad"]


_INITIAL = "initial_accumulator_value"


@documented
class Adagrad(Optimizer):
    """Adaptive subgradients (Duchi, Hazan & Singer 2011, JMLR 12), as `torch.optim.Adagrad`.

        sum = sum + g²
        param = param - lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps)

    where g is the gradient (negated if `maximize`) plus weight_decay param. A step with `SparseRows` changes these rows
    only.

    Args:
        lr_decay: of the learning rate, with each step.
        initial_accumulator_value: the initial sum; one for all groups (torch ignores that of a group).

    Raises:
        UnsupportedError: at a step with `SparseRows` and weight decay.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.Adagrad([w], lr=0.5).step(grads=[[3.0]])
        >>> w.tolist()
        [0.5]
    """

    rule = Rule("adagrad")
    layout_type = SparseLayout

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "lr_decay", "initial_accumulator_value")

    def _append_groups(self, groups: Sequence[Any]) -> None:
        for group in groups:
            value = group.get(_INITIAL, self.defaults[_INITIAL]) if isinstance(group, Mapping) else None
            if value is not None and value != self.defaults[_INITIAL]:
                raise ValueError(f"{_INITIAL} is the same for all groups: pass it to Adagrad, not to a group")
        super()._append_groups(groups)

    def changes_rows_alone(self, group: Mapping[str, Any]) -> bool:
        if self._flag(group, "use_weight_decay"):
            raise UnsupportedError("weight_decay option is not compatible with sparse gradients")
        return True

    def _build(self) -> None:
        super()._build()
        assert isinstance(self._built, SparseLayout)
        values = [float(group["initial_accumulator_value"]) for group in self.param_groups for _ in group["params"]]
        self._built.begin_with({number: {"sum": value} for number, value in enumerate(values)})
