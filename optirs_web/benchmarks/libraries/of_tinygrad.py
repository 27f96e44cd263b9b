"""tinygrad: operations and AdamW under its JIT, on the processor or on its default device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from tinygrad import Device as TinyDevice, Tensor, TinyJit
from tinygrad.nn.optim import AdamW

from ...runtime.device import Device
from .library import Array, Library, Operation, is_processor

__all__ = ["Tinygrad"]


class Tinygrad(Library):
    """tinygrad on the hardware of a device."""

    name: ClassVar[str] = "tinygrad"
    operations: Mapping[str, Operation] = {
        "product": lambda a, b: a @ b,
        "product_transposed": lambda a, b: a.T @ b,
        "attention": lambda q, k, v, is_causal=False: q.scaled_dot_product_attention(k, v, is_causal=is_causal),
        "conv2d": lambda x, weight, stride=1, padding=0: x.conv2d(weight, stride=stride, padding=padding),
        "sum": lambda x, axis: x.sum(axis),
        "softmax": lambda x: x.softmax(-1),
        "layer_norm": lambda x: x.layernorm(),
        "cross_entropy": lambda logits, labels: logits.sparse_categorical_crossentropy(labels),
        "mse_loss": lambda x, y: (x - y).square().mean(),
    }

    def __init__(self, device: Device) -> None:
        self.device = "CPU" if is_processor(device) else TinyDevice.DEFAULT

    def array(self, values: Array) -> Any:
        return Tensor(values, device=self.device).realize()

    def values(self, result: Any) -> Array:
        return np.array(result.numpy())

    def wait(self) -> None:
        TinyDevice[self.device].synchronize()

    def call(self, operation: str, arrays: Sequence[Array], **options: Any) -> Callable[[], Any]:
        function, inputs = self._operation(operation), list(map(self.array, arrays))
        step = TinyJit(lambda *arguments: function(*arguments, **options).realize())
        return lambda: step(*inputs)

    def adamw(self, sizes: Sequence[int], is_compiled: bool) -> Callable[[], Any]:
        params = [self.array(np.ones(size, np.float32)) for size in sizes]
        for param in params:
            param.grad = self.array(np.ones(param.shape, np.float32))
        optimizer = AdamW(params)

        def step() -> None:
            with Tensor.train():
                optimizer.step()

        return TinyJit(step) if is_compiled else step
