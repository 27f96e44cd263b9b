"""The models whose training steps are timed: an MLP, and the GPT, residual network and autoencoder of `examples/`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .. import nn, optim
from ..compiled import compile as compiled
from ..datasets import load_book, load_digits
from ..ops import cross_entropy
from ..ops.random_state import manual_seed
from ..runtime.device import Device
from ..tensors import Tensor, tensor
from .libraries.library import Array

__all__ = ["MLP_BATCH", "MLP_SIZES", "NAMES", "training_data", "training_step"]

NAMES = ("mlp", "gpt", "resnet", "vae")
MLP_SIZES, MLP_BATCH = (784, 512, 256, 10), 128
_LENGTH = 20_000
"""Characters of the book that the GPT's batch is taken from."""


def _example(name: str) -> Any:
    """Return a module of `examples/`, which is in the installed package, or next to the package in a clone."""
    full = f"optirs_web.examples.{name}"
    if full not in sys.modules:
        folders = Path(__file__).parents[1] / "examples", Path(__file__).parents[2] / "examples"
        path = next(folder for folder in folders if folder.is_dir()) / f"{name}.py"
        spec = importlib.util.spec_from_file_location(full, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[full] = module
    return sys.modules[full]


@cache
def training_data(model: str) -> tuple[Array, ...]:
    """Return the arrays of a batch.

    Args:
        model: one of `NAMES`. "mlp": images (128, 784) and labels (128,); "gpt": characters and the characters that
            follow them, both (batch, block); "resnet": images (batch, 64) and labels (batch,); "vae": images (batch,
            64) and noise (batch, latent); with the sizes of `examples/`. Images and noise are float32, the others
            int32.
    """
    random = np.random.default_rng(0)
    if model == "mlp":
        images = random.random((MLP_BATCH, MLP_SIZES[0]), dtype=np.float32)
        return images, random.integers(0, MLP_SIZES[-1], MLP_BATCH, dtype=np.int32)
    example = _example(model)
    if model == "gpt":
        codes = np.array(example.Alphabet(load_book()).codes(load_book()[:_LENGTH]))
        codes = codes[: example.BATCH * example.BLOCK + 1]
        shape = example.BATCH, example.BLOCK
        return codes[:-1].reshape(shape).copy(), codes[1:].reshape(shape).copy()
    digits = load_digits()
    images = np.asarray(digits.train_images[: example.BATCH], np.float32)
    if model == "resnet":
        return images, np.asarray(digits.train_labels[: example.BATCH], np.int32)
    return images, random.standard_normal((example.BATCH, example.LATENT)).astype(np.float32)


def training_step(model: str, device: Device) -> Callable[[], Any]:
    """Return a compiled training step of one of `NAMES`, over the same batch each time; it returns the loss."""
    manual_seed(0)
    batch = [tensor(array, device=device) for array in training_data(model)]
    step = _mlp_step(device) if model == "mlp" else _example_step(model, device)
    return lambda: step(*batch)


def _example_step(name: str, device: Device) -> Any:
    example = _example(name)
    if name == "gpt":
        model = example.GPT(len(example.Alphabet(load_book()).characters), device=device)
    else:
        model = (example.ResNet if name == "resnet" else example.VAE)(device=device)
    rule = optim.Adam if name == "vae" else optim.AdamW
    return example.train_step(model, rule(model.parameters(), lr=example.RATE))


def _mlp_step(device: Device) -> Any:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(MLP_SIZES):
        layers += [nn.Linear(inputs, outputs, device=device), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return compiled(step, device=device)
