"""Training of an MLP on the UCI digits, written with the public names only, as a user would write it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import optirs_web as ow

from ..nn.order import epoch_order
from .config import CLASSES, MAY_DIFFER, PIXELS, Config
from .recipes import recipe
from .result import Epoch, Result

__all__ = ["DigitsTraining", "train_digits"]


class DigitsTraining:
    """One run: the images, the network, its optimizer and the two compiled steps.

    Args:
        config: the model, the optimizer and the data to train on.

    Attributes:
        config: the configuration with the learning rate filled in.
        device: the device it runs on.
        data: the images and labels; the pixels are centred on their means over the training images and
            divided by one standard deviation.
        parameters: by name; ``weight0`` is (64, hidden), ``bias0`` (hidden,), and so on.
        optimizer: steps them.
        history: the epochs trained so far.

    Raises:
        ValueError: an option is out of range.
        DeviceNotAvailableError: there is no such device.

    Example:
        >>> training = DigitsTraining(Config(device="cpu", epochs=2))
        >>> [epoch.epoch for epoch in training.run()]
        [1, 2]
        >>> training.result().test_accuracy > 0.8
        True
    """

    def __init__(self, config: Config) -> None:
        self.config = config.checked()
        self.device = ow.device(config.device)
        self.data = _standardized(ow.datasets.load_digits(config.fold))
        self.parameters = _first_parameters(self.config, self.device)
        self.optimizer = recipe(config.optimizer).make(self.parameters.values(), self.config.lr)
        self.history: list[Epoch] = []
        self._seconds = 0.0
        self._stats = ow.Stats()
        self._step = ow.compile(self._train_step, device=self.device)
        self._evaluate = ow.compile(self._evaluation, device=self.device)

    def forward(self, images: ow.Tensor) -> ow.Tensor:
        """Return the logits, (n, 10), of images, (n, 64)."""
        layers = len(self.config.hidden) + 1
        values = images
        for layer in range(layers):
            values = values @ self.parameters[f"weight{layer}"] + self.parameters[f"bias{layer}"]
            if layer < layers - 1:
                values = values.relu()
        return values

    def _train_step(self, images: ow.Tensor, labels: ow.Tensor) -> ow.Tensor:
        self.optimizer.zero_grad()
        loss = ow.cross_entropy(self.forward(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def _evaluation(self, images: ow.Tensor, labels: ow.Tensor) -> tuple[ow.Tensor, ow.Tensor]:
        with ow.no_grad():
            logits = self.forward(images)
            return ow.cross_entropy(logits, labels), logits

    def run(self) -> Iterator[Epoch]:
        """Train the remaining epochs, and yield the figures of each when it is done.

        Raises:
            NonFiniteError: the loss of an epoch is NaN or infinite.
        """
        while len(self.history) < self.config.epochs:
            began, before = time.perf_counter(), self.device.stats.copy()
            epoch = self._train_epoch(len(self.history))
            self._seconds += time.perf_counter() - began
            self._stats += self.device.stats - before
            self.history.append(epoch)
            yield epoch

    def _train_epoch(self, number: int) -> Epoch:
        assert self.config.lr is not None
        lr = self.config.lr * self.config.lr_decay**number
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        images, labels = self.data.train_images, self.data.train_labels
        order = np.array(epoch_order(len(images), self.config.seed, number))
        size = self.config.batch_size
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        losses = [self._step(images[batch], labels[batch]) for batch in batches]
        # Only here does the host wait for the device.
        total = math.fsum(loss.item() * len(batch) for loss, batch in zip(losses, batches, strict=True))
        train_loss = self._finite(total / len(images), "training", number)
        loss, logits = self._evaluate(self.data.test_images, self.data.test_labels)
        test_loss = self._finite(loss.item(), "test", number)
        is_right = logits.numpy().argmax(axis=1) == self.data.test_labels
        return Epoch(number + 1, lr, train_loss, test_loss, float(is_right.mean()))

    def _finite(self, loss: float, kind: str, number: int) -> float:
        if not math.isfinite(loss):
            raise ow.errors.NonFiniteError(
                f"the {kind} loss of epoch {number + 1} is {loss}: training has diverged. "
                f"Try a lower learning rate (it was {self.config.lr:g})"
            )
        return loss

    def result(self) -> Result:
        """Return the figures of the epochs trained so far.

        Raises:
            ValueError: nothing was trained yet.
        """
        if not self.history:
            raise ValueError("there is no result before the first epoch")
        return Result(
            config=self.config,
            device=self.device.name,
            history=tuple(self.history),
            train_images=len(self.data.train_images),
            test_images=len(self.data.test_images),
            seconds=self._seconds,
            stats=self._stats,
        )

    # Checkpoints.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters, optimizer state, history and config to one file, as a whole or not at all."""
        history = [list(epoch) for epoch in self.history]
        extra = {"config": asdict(self.config), "epoch": len(history), "history": history}
        ow.save_checkpoint(path, self.parameters, self.optimizer, extra)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Load a checkpoint of `save`, to continue as without the interruption: on the same device bit for bit.

        Adafactor and CAME continue up to rounding: the means of their state per row are recomputed.

        Raises:
            FileNotFoundError: there is no such file.
            CheckpointError: the file is no checkpoint of this job, is damaged, or its config differs in more
                than device and epochs. Nothing was changed then.
        """
        extra = ow.checkpoint_extra(path)
        try:
            saved = dict(extra["config"])
            history = [Epoch(int(number), *map(float, figures)) for number, *figures in extra["history"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ow.errors.CheckpointError(f"{path} is not a checkpoint of a digits run") from error
        self._check_config(path, saved)
        if len(history) > self.config.epochs:
            raise ow.errors.CheckpointError(
                f"{path} already has {len(history)} epochs; set epochs above {self.config.epochs}"
            )
        ow.load_checkpoint(path, self.parameters, self.optimizer)
        self.history = history

    def _check_config(self, path: Any, saved: Mapping[str, Any]) -> None:
        ours = {name: _plain(getattr(self.config, name)) for name in _compared()}
        differing = [
            f"{name} is {saved.get(name)} there and {value} here"
            for name, value in ours.items()
            if saved.get(name) != value
        ]
        if differing:
            raise ow.errors.CheckpointError(f"{path} belongs to another run: {'; '.join(differing)}")


def train_digits(config: Config | None = None) -> Result:
    """Train from the beginning to the end.

    Raises:
        ValueError: an option is out of range.
        DeviceNotAvailableError: there is no such device.
        NonFiniteError: the loss became NaN or infinite.

    Example:
        >>> train_digits(Config(device="cpu", epochs=1, hidden=(16,))).history[0].epoch
        1
    """
    training = DigitsTraining(config or Config())
    for _ in training.run():
        pass
    return training.result()


def _compared() -> list[str]:
    return [field.name for field in fields(Config) if field.name not in MAY_DIFFER]


def _plain(value: Any) -> Any:
    """Return a value as it is after writing it to JSON and reading it back: a tuple as a list."""
    return list(value) if isinstance(value, tuple) else value


def _standardized(digits: ow.datasets.Digits) -> ow.datasets.Digits:
    """Return the data with each pixel less its mean over the training images, divided by one standard deviation.

    A standard deviation for each pixel would amplify those at the border, which are nearly always blank.
    """
    mean = digits.train_images.mean(axis=0, dtype=np.float64)
    deviation = digits.train_images.std(dtype=np.float64)

    def standardize(images: NDArray[np.float32]) -> NDArray[np.float32]:
        scaled: NDArray[np.float32] = ((images - mean) / deviation).astype(np.float32)
        return scaled

    return digits._replace(train_images=standardize(digits.train_images), test_images=standardize(digits.test_images))


def _first_parameters(config: Config, device: ow.Device) -> dict[str, ow.Parameter]:
    """Return zero biases and normal weights, of He et al.'s variance (arXiv:1502.01852), LeCun's in the last layer."""
    ow.manual_seed(config.seed)
    widths = (PIXELS, *config.hidden, CLASSES)
    parameters = {}
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        gain = 1.0 if layer == len(config.hidden) else 2.0
        weight = ow.randn((inputs, outputs), device=device) * math.sqrt(gain / inputs)
        bias = ow.zeros((outputs,), device=device)
        for name, value in ((f"weight{layer}", weight), (f"bias{layer}", bias)):
            parameters[name] = ow.Parameter(value, name=name)
    return parameters
