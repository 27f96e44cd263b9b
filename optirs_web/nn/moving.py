"""The move of a module's parameters and buffers to another device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import UnsupportedError
from ..hostdata import HostData
from ..runtime.device import Device
from ..sparse import SparseRows
from ..tensors import Parameter, tensor

if TYPE_CHECKING:
    from .module import Module

__all__ = ["move"]


def move(module: Module, target: Device) -> None:
    """Move parameters, gradients and buffers of a module to a device; see `Module.to`."""
    parameters = {name: param for name, param in module.named_parameters() if param.device is not target}
    for name, param in parameters.items():
        if param._home is not None:
            raise UnsupportedError(
                f"parameter '{name}' is in an optimizer's arena and cannot move to '{target.name}'; call "
                "to() before the optimizer is made, or copy.deepcopy the module and move the copy"
            )
    for param in parameters.values():
        _move(param, target)
    for buffer in module.buffers():
        if buffer.device is not target:
            buffer.move_to(target, buffer.device.read(buffer.view))


def _move(parameter: Parameter, target: Device) -> None:
    """Copy a parameter and its gradient to a device; programs that bound the old memory record again."""
    content = parameter.device.read(parameter.view)
    grad: Any = parameter._grad
    parameter.view.buffer.retired = True
    parameter.view = tensor(HostData(content, parameter.shape, parameter.dtype), device=target).view
    parameter._version += 1
    parameter._grad_view = None
    if grad is not None:
        moved: Any = grad.to(target) if isinstance(grad, SparseRows) else tensor(grad, device=target)
        parameter._grad = moved
