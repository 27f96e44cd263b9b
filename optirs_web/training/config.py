"""The configuration of a run on the digits, and its checks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..datasets.digits import FOLDS
from ..ops.random_state import checked_seed
from .recipes import recipe

__all__ = ["CLASSES", "MAY_DIFFER", "PIXELS", "Config"]

PIXELS, CLASSES = 64, 10


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a run. Two runs of the same configuration on the same device are equal bit for bit.

    Attributes:
        device: an argument of `optirs_web.device`; None means OPTIRS_DEVICE, or "auto".
        optimizer: a key of `OPTIMIZERS`; case does not matter.
        epochs: passes over the training images.
        seed: of the first weights and of the order of the images.
        batch_size: images in a step; the last step of an epoch has the remaining ones.
        hidden: the widths of the hidden layers.
        fold: the fold of the digits to test on, 0 to 4.
        lr: the learning rate of the first epoch; None means that of the optimizer's recipe.
        lr_decay: the factor of the learning rate after each epoch. It does not depend on `epochs`, so that a run can
            be continued to any length.
    """

    device: str | None = None
    optimizer: str = "adamw"
    epochs: int = 25
    seed: int = 0
    batch_size: int = 64
    hidden: tuple[int, ...] = (256,)
    fold: int = 0
    lr: float | None = None
    lr_decay: float = 0.92

    @property
    def widths(self) -> str:
        """The widths of all layers, as 64-256-10."""
        return "-".join(map(str, (PIXELS, *self.hidden, CLASSES)))

    def checked(self) -> Config:
        """Return this configuration with the learning rate filled in and the optimizer's name in lower case.

        Raises:
            TypeError: the seed is not an integer.
            ValueError: an option is out of range; the message names it.
        """
        chosen = recipe(self.optimizer)
        counts = [("epochs", self.epochs), ("batch_size", self.batch_size)]
        for name, value in counts + [("hidden", width) for width in self.hidden]:
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.fold not in range(FOLDS):
            raise ValueError(f"there is no fold {self.fold}: choose 0 to {FOLDS - 1}")
        checked_seed(self.seed)
        lr = chosen.lr if self.lr is None else self.lr
        for name, rate in (("lr", lr), ("lr_decay", self.lr_decay)):
            if not (math.isfinite(rate) and rate > 0):
                raise ValueError(f"{name} must be a finite number above 0, not {rate}")
        return replace(self, optimizer=self.optimizer.lower(), lr=lr)


MAY_DIFFER = {"device", "epochs"}
"""Fields in which a continued run may differ from its checkpoint."""
