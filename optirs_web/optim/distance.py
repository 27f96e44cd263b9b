"""The base of optimizers that estimate the distance to the solution, d: one factor of lr for all tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar

from .optimizer import Optimizer
from .options import LARGEST_FLOAT32, SMALLEST_NORMAL

__all__ = ["EstimatesDistance", "above_zero"]

_LARGEST_GROWTH = 1e30  # instead of infinity, which shaders need not support


def above_zero(group: Mapping[str, Any], *names: str) -> None:
    """Check that options are above zero in float32, on every device.

    Raises:
        ValueError: one is not; the message names it.
    """
    for name in names:
        value = group[name]
        if not (isinstance(value, Real) and SMALLEST_NORMAL <= float(value) <= LARGEST_FLOAT32):
            raise ValueError(f"Invalid {'epsilon' if name == 'eps' else name} value: {value}")


class EstimatesDistance(Optimizer):
    """An optimizer that estimates d, by the options of the first group; groups have one learning rate, or 0."""

    takes_tensor_lr = False
    tiny = ("exp_avg",)  # of gradients times d
    options_of_d: ClassVar[tuple[str, ...]] = ("d0", "growth_rate")
    meanings: ClassVar[Mapping[str, str]] = {
        "lr": "multiplies d; leave it at 1, or schedule it down from 1.",
        "momentum": "of an average of the iterates.",
        "d0": "the first d.",
        "growth_rate": "d grows at most by this factor in a step.",
        "use_bias_correction": "multiply lr by sqrt(1 - beta2^t) / (1 - beta1^t).",
        "ValueError": "an option is out of range, or, at a step, the learning rates of groups differ.",
    }

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        above_zero(group, "d0", *(["eps"] if "eps" in group else []))
        growth_rate = group["growth_rate"]
        if not (isinstance(growth_rate, Real) and float(growth_rate) >= 1):
            raise ValueError(f"Invalid growth_rate value: {growth_rate}")

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        """Return the rule's Hyper.

        Raises:
            ValueError: two groups have different learning rates, neither of them 0.
        """
        groups: list[Mapping[str, Any]] = [*self.param_groups] or [group]
        rates = {float(group_options["lr"]) for group_options in groups}
        if len(rates - {0.0}) > 1:
            raise ValueError(f"the learning rates of groups are one number or 0, since d is one number; not {rates}")
        options = {**group, **{name: groups[0][name] for name in self.options_of_d}}
        options["growth_rate"] = min(float(options["growth_rate"]), _LARGEST_GROWTH)
        if "betas" in options:
            options["sqrt_beta2"] = math.sqrt(options["betas"][1])
        if options.get("beta3", 0.0) is None:
            options["beta3"] = options["sqrt_beta2"]
        return super().hyper(options)
