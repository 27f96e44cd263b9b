"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from .optimizer import LARGEST_FLOAT32, Optimizer, Params, at_least_zero

__all__ = ["SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if asked for, as `torch.optim.SGD`.

        buffer = g at the first step, then momentum buffer + (1 - dampening) g
        param = param - lr (g + momentum buffer if nesterov, otherwise buffer)

    where g is the gradient (negated if `maximize`) plus weight_decay param.

    Args:
        params: parameters, or dicts with "params" and options of their own.
        lr: learning rate.
        momentum: 0 needs no state.
        dampening: of the gradient, from the second step on.
        weight_decay: L2 penalty.
        nesterov: Nesterov's momentum (Sutskever et al. 2013).
        maximize: go up instead of down.
        skip_nonfinite: leave everything as it is, step counts too, when a gradient is NaN or infinite.

    Raises:
        ValueError: an option is out of range.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.SGD([w], lr=0.5).step(grads=[[1.0]])
        >>> w.tolist()
        [0.5]
    """

    rule = "sgd"
    scalars_in_state = ()

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        skip_nonfinite: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, defaults, skip_nonfinite=skip_nonfinite)

    def validate(self, group: Mapping[str, Any]) -> None:
        at_least_zero(group, "lr", "momentum", "weight_decay")
        if not (isinstance(group["dampening"], Real) and abs(float(group["dampening"])) <= LARGEST_FLOAT32):
            raise ValueError(f"Invalid dampening value: {group['dampening']}")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")

    def flags(self, group: Mapping[str, Any]) -> dict[str, bool]:
        return {
            "maximize": bool(group["maximize"]),
            "use_momentum": group["momentum"] != 0,
            "nesterov": bool(group["nesterov"]),
        }

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        return {
            "lr": group["lr"],
            "momentum": group["momentum"],
            "one_minus_dampening": 1 - group["dampening"],
            "weight_decay": group["weight_decay"],
        }
