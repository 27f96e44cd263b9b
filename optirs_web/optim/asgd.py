"""Averaged stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, Unpack

from ..errors import UnsupportedError
from .arguments import documented, rule_options
from .optimizer import LARGEST_FLOAT32, Optimizer, Options, Params, Rate, Rule

__all__ = ["ASGD"]


@documented
class ASGD(Optimizer):
    """Averaged stochastic gradient descent (Polyak & Juditsky 1992), as `torch.optim.ASGD`.

        param = param - eta (lambd param + g)
        ax = ax + mu (param - ax)
        eta = lr / (1 + lambd lr t)^alpha
        mu = 1 / max(1, t - t0)

    where g is the gradient (negated if `maximize`) plus weight_decay param; at first eta is lr and mu is 1. The average
    `ax` is in the state dict, and `use_average` sets the parameters to it.

    Args:
        lr: learning rate of the first step.
        lambd: decay of the parameter, and of eta.
        alpha: power of the decay of eta.
        t0: the step from which on the average is taken; before, `ax` is the parameter.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> optimizer = ow.optim.ASGD([w], lr=0.25, lambd=0.0, t0=0)
        >>> for _ in range(3):
        ...     optimizer.step(grads=[[1.0]])
        >>> w.tolist()
        [0.25]
        >>> optimizer.use_average()
        >>> w.tolist()
        [0.375]
    """

    rule = Rule("asgd")
    scalars_in_state = ("step", "eta", "mu")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        for name in ("lambd", "alpha", "t0"):
            if not (isinstance(group[name], Real) and abs(float(group[name])) <= LARGEST_FLOAT32):
                raise ValueError(f"Invalid {name} value: {group[name]}")

    def use_average(self) -> None:
        """Set each parameter that has taken a step to its average, as at the end of training.

        Raises:
            UnsupportedError: in a compiled step.
        """
        if self._built.device.recording is not None:
            raise UnsupportedError("use the average outside a compiled step")
        self._built.apply("eval")
        self._note_change([True] * len(self._params()))
