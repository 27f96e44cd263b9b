"""torch, eager with its fused optimizer: on the processor, or on an NVIDIA GPU by its CUDA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from ...runtime.device import Device
from ..models import training_data
from .library import Array, Library, NotOffered, Operation, float_arguments, is_processor
from .of_torch_names import operations_of

__all__ = ["Torch"]

_labels = {np.dtype(np.int32): torch.int64}
"""torch's losses take classes as int64."""


class Torch(Library):
    """torch on the hardware of a device."""

    name: ClassVar[str] = "torch"

    def __init__(self, device: Device) -> None:
        self.place = "cpu" if is_processor(device) else "cuda"
        if self.place == "cuda" and not torch.cuda.is_available():
            raise NotOffered("this torch finds no GPU with CUDA")
        self.operations: Mapping[str, Operation] = operations_of(torch.nn.functional)

    def array(self, values: Array) -> Any:
        return torch.tensor(values, device=self.place, dtype=_labels.get(values.dtype))

    def values(self, result: Any) -> Array:
        return np.asarray(result.detach().cpu().numpy())

    def wait(self) -> None:
        if self.place == "cuda":
            torch.cuda.synchronize()

    def gradients(self, operation: str, arrays: Sequence[Array], **options: Any) -> Callable[[], Any]:
        function, inputs = self._operation(operation), [self.array(one) for one in arrays]
        leaves = [inputs[number].requires_grad_() for number in float_arguments(arrays)]
        return lambda: torch.autograd.grad(function(*inputs, **options).sum(), leaves)

    def adamw(self, sizes: Sequence[int], is_compiled: bool) -> Callable[[], Any]:
        params = [torch.nn.Parameter(torch.ones(size, device=self.place)) for size in sizes]
        for param in params:
            param.grad = torch.ones_like(param)
        step: Callable[[], Any] = torch.optim.AdamW(params, fused=True).step
        return step

    def training(self, model: str) -> Callable[[], Any]:
        from .. import torch_models

        models: Mapping[str, Any] = torch_models.MODELS
        twin = models[model]().to(self.place)
        optimizer, batch = twin.optimizer(fused=True), [self.array(one) for one in training_data(model)]

        def step() -> Any:
            optimizer.zero_grad()
            loss = twin.loss(*batch)
            loss.backward()
            optimizer.step()
            return loss

        return step

    def download(self, values: Array) -> Callable[[], Any]:
        if self.place == "cpu":
            raise NotOffered("torch on the processor reads an array where it is, without a copy")
        return super().download(values)

    def peak_memory(self, model: str) -> int:
        from .torch_memory import Live

        with Live() as live:
            step = self.training(model)
            for _ in range(3):
                step()
        return int(live.peak)
