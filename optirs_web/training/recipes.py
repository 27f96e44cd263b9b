"""The optimizers that train on the digits, with learning rates and options. Pages run this file too, without NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import optirs_web as ow

__all__ = ["COMMON", "OPTIMIZERS", "Recipe", "recipe"]


class Recipe(NamedTuple):
    """An optimizer with the learning rate and the options with which it trains well on these data.

    Attributes:
        name: that of its class in `optirs_web.optim`. Classes are imported when used: there are many.
        lr: the learning rate.
        options: its other arguments.
    """

    name: str
    lr: float
    options: Mapping[str, Any] = MappingProxyType({})

    def make(self, params: Iterable[ow.Parameter], lr: float | None = None) -> ow.optim.Optimizer:
        """Return the optimizer of these parameters; `lr=None` means the learning rate of the recipe."""
        optimizer: ow.optim.Optimizer = getattr(ow.optim, self.name)(
            params, lr=self.lr if lr is None else lr, **self.options
        )
        return optimizer


COMMON = (
    Recipe("AdamW", 4e-3, {"weight_decay": 0.1}),
    Recipe("Adam", 4e-3, {"weight_decay": 1e-4}),
    Recipe("SGD", 0.1, {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
    Recipe("RMSprop", 0.01),
    Recipe("Adagrad", 0.01),
    Recipe("NAdam", 2e-3),
    Recipe("RAdam", 0.03),
    Recipe("Lion", 3e-3),
    Recipe("Adafactor", 0.03),
    Recipe("LAMB", 0.01),
)
"""The common optimizers, the most common first."""

_OTHERS = (
    Recipe("AdaBelief", 0.01),
    Recipe("AdaBound", 0.03),
    Recipe("Adadelta", 1.0),
    Recipe("Adamax", 0.02),
    Recipe("AdamMini", 0.01),
    Recipe("AdamWScheduleFree", 0.01),
    Recipe("Adan", 0.02),
    Recipe("AdEMAMix", 0.01),
    Recipe("ADOPT", 0.01),
    Recipe("APOLLO", 0.01, {"rank": 8, "scale": 3.0}),
    Recipe("ASGD", 0.3),
    Recipe("CAME", 2e-4),
    Recipe("CautiousAdamW", 0.01),
    Recipe("CautiousLion", 3e-3),
    Recipe("DAdaptAdaGrad", 1.0, {"d0": 0.01}),
    Recipe("DAdaptAdam", 1.0, {"d0": 1e-4}),
    Recipe("DAdaptSGD", 1.0, {"d0": 0.01}),
    Recipe("DoG", 1.0, {"reps_rel": 0.01}),
    Recipe("FedProx", 0.3),
    Recipe("FTRL", 0.3),
    Recipe("GaLore", 0.04, {"rank": 16}),
    Recipe("LARS", 3.0),
    Recipe("LDoG", 1.0, {"reps_rel": 0.01}),
    Recipe("MARS", 3e-3),
    Recipe("MetaSGD", 0.3),
    Recipe("NovoGrad", 0.03),
    Recipe("Prodigy", 1.0),
    Recipe("Ranger", 0.03),
    Recipe("Rprop", 0.01),
    Recipe("SGDScheduleFree", 1.0),
    Recipe("Shampoo", 0.1, {"update_freq": 20, "max_preconditioner_dim": 64}),
    Recipe("Signum", 3e-3),
    Recipe("SM3", 0.03),
    Recipe("SOAP", 0.01),
    Recipe("SophiaH", 3e-3),
    Recipe("Yogi", 0.01),
)

OPTIMIZERS = {entry.name.lower(): entry for entry in (*COMMON, *_OTHERS)}
"""Every optimizer that needs only gradients of tensors of any shape, by its name in checkpoints: the common optimizers,
then the others from A to Z."""


def recipe(name: str) -> Recipe:
    """Return the recipe of an optimizer; case does not matter.

    Raises:
        ValueError: there is no such recipe; the message lists the names.

    Example:
        >>> recipe("adamw").name
        'AdamW'
    """
    if name.lower() not in OPTIMIZERS:
        raise ValueError(f"there is no optimizer '{name}'; known are {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name.lower()]
