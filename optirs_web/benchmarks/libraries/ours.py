"""This library: operations are called as they are, gradients and training steps are compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ... import nn, optim
from ...compiled import compile as compiled
from ...derivatives import grad
from ...ops.creation import ones
from ...runtime.device import Device
from ...tensors import Parameter, tensor
from ..counting import peak_of
from ..models import training_step
from .library import Array, Library, Operation, float_arguments
from .of_torch_names import operations_of

__all__ = ["Ours"]


class Ours(Library):
    """This library on a device."""

    name: ClassVar[str] = "ours"

    def __init__(self, device: Device) -> None:
        self.device = device
        self.operations: Mapping[str, Operation] = operations_of(nn.functional)

    def array(self, values: Array) -> Any:
        return tensor(values, device=self.device)

    def values(self, result: Any) -> Array:
        return np.asarray(result.numpy())

    def wait(self) -> None:
        self.device.synchronize()

    def gradients(self, operation: str, arrays: Sequence[Array], **options: Any) -> Callable[[], Any]:
        function, inputs = self._operation(operation), list(map(self.array, arrays))
        gradients = grad(lambda *arguments: function(*arguments, **options).sum(), float_arguments(arrays))
        step = compiled(gradients, device=self.device)
        return lambda: step(*inputs)

    def adamw(self, sizes: Sequence[int], is_compiled: bool) -> Callable[[], Any]:
        params = [Parameter(np.ones(size, np.float32), device=self.device) for size in sizes]
        optimizer = optim.AdamW(params)
        for param in params:
            param.grad = ones(param.shape, device=self.device)
        return compiled(lambda: optimizer.step(), device=self.device) if is_compiled else optimizer.step

    def training(self, model: str) -> Callable[[], Any]:
        return training_step(model, self.device)

    def peak_memory(self, model: str) -> int:
        def train() -> None:
            step = training_step(model, self.device)
            for _ in range(3):
                step()

        return peak_of(self.device, train)
