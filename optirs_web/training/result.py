"""The figures of a run and of its epochs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import optirs_web as ow

from .config import Config

__all__ = ["Epoch", "Result"]


class Epoch(NamedTuple):
    """The figures of one epoch.

    Attributes:
        epoch: its number, from 1.
        lr: the learning rate.
        train_loss: the mean over the training images, each before its step's update.
        test_loss: the mean over the test images after the epoch.
        test_accuracy: the share of test images that were classified correctly after the epoch.
    """

    epoch: int
    lr: float
    train_loss: float
    test_loss: float
    test_accuracy: float


@dataclass(frozen=True, slots=True)
class Result:
    """A finished run.

    Attributes:
        config: with the learning rate filled in.
        device: the name of the device it ran on.
        history: one entry for each epoch, including those before a resume.
        train_images: how many images it was trained on.
        test_images: how many it was tested on.
        seconds: wall-clock time of the epochs trained by this process.
        stats: the device's counts for these epochs.
    """

    config: Config
    device: str
    history: tuple[Epoch, ...]
    train_images: int
    test_images: int
    seconds: float
    stats: ow.Stats

    @property
    def test_accuracy(self) -> float:
        """The test accuracy of the last epoch."""
        return self.history[-1].test_accuracy

    @property
    def best(self) -> Epoch:
        """The epoch with the highest test accuracy, the first of several."""
        return max(self.history, key=lambda epoch: epoch.test_accuracy)

    def metrics(self) -> dict[str, Any]:
        """Return all figures as values of JSON."""
        return {
            "test_accuracy": self.test_accuracy,
            "best_test_accuracy": self.best.test_accuracy,
            "best_epoch": self.best.epoch,
            "device": self.device,
            "config": asdict(self.config),
            "train_images": self.train_images,
            "test_images": self.test_images,
            "seconds": self.seconds,
            "stats": asdict(self.stats),
            "history": [epoch._asdict() for epoch in self.history],
        }
