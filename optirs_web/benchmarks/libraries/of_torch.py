"""torch, eager, with its fused optimizer: on the processor, or on an NVIDIA GPU through CUDA."""

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

_DTYPES = {np.dtype(np.int32): torch.int64}
"""torch's dtypes by NumPy's, where they differ: torch's losses take classes as int64."""


class Torch(Library):
    """torch on the hardware of a device."""

    name: ClassVar[str] = "torch"

    def __init__(self, device: Device) -> None:
        self.device = "cpu" if is_processor(device) else "cuda"
        if self.device == "cuda" and not torch.cuda.is_available():
            raise NotOffered("this torch finds no GPU with CUDA")
        self.operations: Mapping[str, Operation] = operations_of(torch.nn.functional)

    def array(self, values: Array) -> Any:
        return torch.tensor(values, device=self.device, dtype=_DTYPES.get(values.dtype))

    def values(self, result: Any) -> Array:
        return np.asarray(result.detach().cpu().numpy())

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def gradients(self, operation: str, arrays: Sequence[Array], **options: Any) -> Callable[[], Any]:
        function, inputs = self._operation(operation), list(map(self.array, arrays))
        leaves = [inputs[index].requires_grad_() for index in float_arguments(arrays)]
        return lambda: torch.autograd.grad(function(*inputs, **options).sum(), leaves)

    def adamw(self, sizes: Sequence[int], is_compiled: bool) -> Callable[[], Any]:
        params = [torch.nn.Parameter(torch.ones(size, device=self.device)) for size in sizes]
        for param in params:
            param.grad = torch.ones_like(param)
        step: Callable[[], Any] = torch.optim.AdamW(params, fused=True).step
        return step

    def training(self, model: str) -> Callable[[], Any]:
        from .. import torch_models

        models: Mapping[str, Any] = torch_models.MODELS
        module = models[model]().to(self.device)
        optimizer, batch = module.optimizer(fused=True), list(map(self.array, training_data(model)))

        def step() -> Any:
            optimizer.zero_grad()
            loss = module.loss(*batch)
            loss.backward()
            optimizer.step()
            return loss

        return step

    def download(self, values: Array) -> Callable[[], Any]:
        if self.device == "cpu":
            raise NotOffered("torch on the processor reads an array where it is, without a copy")
        return super().download(values)

    def peak_memory(self, model: str) -> int:
        from .torch_memory import Live

        with Live() as live:
            step = self.training(model)
            for _ in range(3):
                step()
        return int(live.peak)
