"""Rprop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .optimizer import LARGEST_FLOAT32, Optimizer, Options, Params, Rate, Rule

__all__ = ["Rprop"]


@documented
class Rprop(Optimizer):
    """Resilient propagation (Riedmiller & Braun 1993), as `torch.optim.Rprop`; for full batches.

        step_size = step_size etaplus where g has the sign of the last step, step_size etaminus where it has the other,
            within step_sizes; lr at the first step
        g = 0 where the sign has changed
        param = param - step_size sign(g)

    where g is the gradient (negated if `maximize`).

    Args:
        lr: the first step size of every element.
        etas: (etaminus, etaplus), with 0 < etaminus < 1 < etaplus.
        step_sizes: the smallest and the largest.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> optimizer = ow.optim.Rprop([w], lr=0.5, etas=(0.5, 1.5))
        >>> for grad in 3.0, 2.0:
        ...     optimizer.step(grads=[[grad]])
        >>> w.tolist()
        [-0.25]
    """

    rule = Rule("rprop")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        for name in ("etas", "step_sizes"):
            if not (isinstance(group[name], (tuple, list)) and len(group[name]) == 2):
                raise ValueError(f"{name} must be a tuple of two numbers, not {group[name]}")
        etas, sizes = group["etas"], group["step_sizes"]
        if not 0.0 < etas[0] < 1.0 < etas[1] <= LARGEST_FLOAT32:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        if not all(0.0 <= size <= LARGEST_FLOAT32 for size in sizes):
            raise ValueError(f"Invalid step_sizes values: {sizes[0]}, {sizes[1]}")

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        eta_minus, eta_plus = group["etas"]
        smallest, largest = group["step_sizes"]
        named = {"eta_minus": eta_minus, "eta_plus": eta_plus, "step_size_min": smallest, "step_size_max": largest}
        return super().hyper({**group, **named})
