"""Train on the digits from checkpoints that native runs can continue, and continue those of native runs.

The run is that of ``optirs-web train digits``: the same network, recipe, order of the images and checkpoint. This
version needs no NumPy; the tests compare the two.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from digit_images import CLASSES, PIXELS, epoch_order, load_images
from recipes import COMMON, OPTIMIZERS, recipe

import optirs_web as ow

LR_DECAY = 0.92
FOLDS = 5
MOST_LAYERS = 8
WIDEST = 4096

_FOREIGN = {
    b"PK\x03\x04": "a ZIP archive, as torch.save writes",
    b"\x80": "a Python pickle",
    b"\x1f\x8b": "compressed with gzip",
    b"\x89HDF": "an HDF5 file",
    b"<": "a web page; perhaps a download failed",
    b"{": "JSON",
}
"""Kinds of files that are mistaken for checkpoints, by their first bytes."""


def offered() -> list[dict[str, Any]]:
    """Return the optimizers of a run, each with its displayed name and its name in a checkpoint."""
    return [
        {"name": entry.name, "value": value, "common": entry in COMMON, "lr": entry.lr}
        for value, entry in OPTIMIZERS.items()
    ]


def first_config(optimizer: str = "adamw", **changed: Any) -> dict[str, Any]:
    """Return the configuration of a run, with the fields of `optirs_web.training.Config`."""
    chosen = recipe(optimizer)
    config = {
        "device": None,
        "optimizer": chosen.name.lower(),
        "epochs": 25,
        "seed": 0,
        "batch_size": 64,
        "hidden": [256],
        "fold": 0,
        "lr": chosen.lr,
        "lr_decay": LR_DECAY,
    }
    unknown = set(changed) - set(config)
    if unknown:
        raise ValueError(f"a digits run has no setting {', '.join(sorted(unknown))}")
    return _checked(config | changed)


def _checked(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config if a run in a page can have all of its values; those of a file may be anything.

    Raises:
        ValueError: a value is out of range.
    """
    allowed = {
        "seed": (_is_whole(config["seed"], 0, (1 << 64) - 1), "an integer from 0 to 2**64 - 1"),
        "batch_size": (_is_whole(config["batch_size"], 1, 1 << 16), "an integer from 1 to 65,536"),
        "fold": (_is_whole(config["fold"], 0, FOLDS - 1), f"an integer from 0 to {FOLDS - 1}"),
        "lr": (_is_rate(config["lr"]), "a number, 0 or greater"),
        "lr_decay": (_is_rate(config["lr_decay"]), "a number, 0 or greater"),
        "hidden": (_are_widths(config["hidden"]), f"at most {MOST_LAYERS} widths, from 1 to {WIDEST:,} each"),
    }
    for name, (is_allowed, requirement) in allowed.items():
        if not is_allowed:
            raise ValueError(f"{name} must be {requirement}, not {str(config[name])[:40]}")
    return config


def _is_whole(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _is_rate(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _are_widths(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_LAYERS and all(_is_whole(width, 1, WIDEST) for width in value)


class Run:
    """A run on the digits.

    Args:
        device: where it is trained.
        data: the data of `load_images`.
        config: a configuration of `first_config`.

    Attributes:
        history: for each epoch its number, learning rate, training loss, test loss and test accuracy.
        has_diverged: a loss became NaN or infinite, so the run cannot be continued or saved.
    """

    def __init__(self, device: ow.Device, data: bytes, config: dict[str, Any]) -> None:
        self.device, self.config = device, config
        self.train_images, self.test_images, _ = load_images(data, config["fold"])
        self.parameters = _first_parameters(device, config)
        self.optimizer = recipe(config["optimizer"]).make(self.parameters.values(), config["lr"])
        self.history: list[list[float]] = []
        self.has_diverged = False
        self._step = ow.compile(self._train_step, device=device)
        self._evaluate = ow.compile(self._evaluation, device=device)

    def forward(self, images: ow.Tensor) -> ow.Tensor:
        """Return the logits, (n, 10), of images, (n, 64)."""
        values, last = images, len(self.config["hidden"])
        for layer in range(last + 1):
            values = values @ self.parameters[f"weight{layer}"] + self.parameters[f"bias{layer}"]
            if layer < last:
                values = values.relu()
        return values

    def _train_step(self, images: ow.Tensor, labels: ow.Tensor, total: ow.Tensor) -> ow.Tensor:
        self.optimizer.zero_grad()
        loss = ow.cross_entropy(self.forward(images), labels)
        loss.backward()
        self.optimizer.step()
        return total + loss.detach() * labels.size

    def _evaluation(self, images: ow.Tensor, labels: ow.Tensor) -> tuple[ow.Tensor, ow.Tensor]:
        with ow.no_grad():
            logits = self.forward(images)
            return ow.cross_entropy(logits, labels), logits

    async def train_epoch(self) -> list[float]:
        """Train one epoch, add its figures to the history and return them. Waits for the device at its end only.

        Raises:
            NonFiniteError: a loss is NaN or infinite.
        """
        number = len(self.history)
        lr = self.config["lr"] * self.config["lr_decay"] ** number
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        images, size = self.train_images, self.config["batch_size"]
        order = epoch_order(len(images.rows), self.config["seed"], number)
        total = ow.zeros((), device=self.device)
        for first in range(0, len(order), size):
            total = self._step(*images.batch(order[first : first + size]), total)
        loss, logits = self._evaluate(*self.test_images.batch(range(len(self.test_images.rows))))
        rows = await logits.tolist_async()
        right = sum(row.index(max(row)) == label for row, label in zip(rows, self.test_images.labels, strict=True))
        train_loss = await total.item_async() / len(order)
        test_loss = await loss.item_async()
        if not (math.isfinite(train_loss) and math.isfinite(test_loss)):
            self.has_diverged = True
            raise ow.errors.NonFiniteError(
                f"the loss became NaN or infinite in epoch {number + 1}: this run cannot continue; "
                "load an earlier checkpoint or start a new run"
            )
        self.history.append([number + 1, lr, train_loss, test_loss, right / len(rows)])
        return self.history[-1]

    async def save(self) -> bytes:
        """Return a checkpoint for `load` and for ``optirs-web train digits --resume``."""
        extra = {"config": self.config, "epoch": len(self.history), "history": self.history}
        return await ow.dump_checkpoint_async(self.parameters, self.optimizer, extra)

    @classmethod
    def load(cls, device: ow.Device, data: bytes, checkpoint: bytes) -> Run:
        """Return the run of a checkpoint, which continues where it stopped.

        Raises:
            CheckpointError: it is no checkpoint of a run on the digits.
        """
        foreign = next((kind for first, kind in _FOREIGN.items() if checkpoint.startswith(first)), None)
        if foreign and checkpoint[8:9] != b"{":  # the header of a safetensors file begins with this character
            raise ow.errors.CheckpointError(f"not a safetensors file: this is {foreign}")
        extra = ow.checkpoint_extra(checkpoint)
        try:
            config = first_config(**extra["config"])
            history = [[int(number), *map(float, figures)] for number, *figures in extra["history"]]
            if any(len(row) != 5 for row in history) or not all(math.isfinite(x) for row in history for x in row):
                raise ValueError("its history does not have five numbers per epoch")
        except (KeyError, TypeError, AttributeError) as error:
            raise ow.errors.CheckpointError("this is not a checkpoint of a run on the digits") from error
        except ValueError as error:
            raise ow.errors.CheckpointError(f"this is not a checkpoint of a run on the digits: {error}") from error
        run = cls(device, data, config)
        ow.load_checkpoint(checkpoint, run.parameters, run.optimizer)
        run.history = history
        return run


def _first_parameters(device: ow.Device, config: dict[str, Any]) -> dict[str, ow.Parameter]:
    """Return zero biases and normal weights, of He et al.'s variance (arXiv:1502.01852), LeCun's in the last layer."""
    ow.manual_seed(config["seed"])
    widths = [PIXELS, *config["hidden"], CLASSES]
    parameters = {}
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        gain = 1.0 if layer == len(config["hidden"]) else 2.0
        weight = ow.randn((inputs, outputs), device=device) * math.sqrt(gain / inputs)
        bias = ow.zeros((outputs,), device=device)
        parameters[f"weight{layer}"] = ow.Parameter(weight, name=f"weight{layer}")
        parameters[f"bias{layer}"] = ow.Parameter(bias, name=f"bias{layer}")
    return parameters
