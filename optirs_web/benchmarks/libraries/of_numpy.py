"""NumPy: forward operations only, each as a user would write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...runtime.device import Device
from .library import Array, Library, NotOffered, Operation, is_processor

__all__ = ["NumPy"]


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _attention(q: Array, k: Array, v: Array, is_causal: bool = False) -> Array:
    scores = q @ np.swapaxes(k, -1, -2) / np.float32(np.sqrt(q.shape[-1]))
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, np.float32(-np.inf))
    return np.asarray(_softmax(scores) @ v)


def _normalized(x: Array, axes: tuple[int, ...]) -> Array:
    centered = x - x.mean(axes, keepdims=True)
    return np.asarray(centered / np.sqrt((centered * centered).mean(axes, keepdims=True) + np.float32(1e-5)))


def _conv2d(x: Array, weight: Array, stride: int = 1, padding: int = 0) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    return np.asarray(np.tensordot(windows, weight, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2))


def _cross_entropy(logits: Array, labels: Array) -> Array:
    shifted = logits - logits.max(-1, keepdims=True)
    chosen = np.take_along_axis(shifted, labels[:, None].astype(np.int64), -1)[:, 0]
    return np.asarray((np.log(np.exp(shifted).sum(-1)) - chosen).mean())


class NumPy(Library):
    """NumPy, on the processor."""

    name: ClassVar[str] = "numpy"
    operations: Mapping[str, Operation] = {
        "product": lambda a, b: a @ b,
        "product_transposed": lambda a, b: a.T @ b,
        "attention": _attention,
        "conv2d": _conv2d,
        "sum": lambda x, axis: x.sum(axis),
        "softmax": _softmax,
        "layer_norm": lambda x: _normalized(x, (-1,)),
        "batch_norm": lambda x: _normalized(x, (0, 2, 3)),
        "cross_entropy": _cross_entropy,
        "mse_loss": lambda x, y: np.square(x - y).mean(),
    }

    def __init__(self, device: Device) -> None:
        if not is_processor(device):
            raise NotOffered("numpy computes on the processor only")

    def array(self, values: Array) -> Any:
        return values.copy()

    def values(self, result: Any) -> Array:
        return np.array(result)
