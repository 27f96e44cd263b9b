"""A module's way to another device."""

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
    """See `Module.to`."""
    parameters = {name: one for name, one in module.named_parameters() if one.device is not target}
    for name, one in parameters.items():
        if one._home is not None:
            raise UnsupportedError(
                f"parameter '{name}' is in an optimizer's arena and cannot move to '{target.name}'; call "
                "to() before the optimizer is made, or copy.deepcopy the module and move the copy"
            )
    for one in parameters.values():
        _move(one, target)
    for buffer in module.buffers():
        if buffer.device is not target:
            buffer.place_on(target, buffer.device.read(buffer.view))


def _move(parameter: Parameter, target: Device) -> None:
    """Programs that bound the old place record again."""
    content = parameter.device.read(parameter.view)
    grad: Any = parameter._grad
    parameter.view.buffer.retired = True
    parameter.view = tensor(HostData(content, parameter.shape, parameter.dtype), device=target).view
    parameter._version += 1
    parameter._grad_place = None
    if grad is not None:
        moved: Any = grad.to(target) if isinstance(grad, SparseRows) else tensor(grad, device=target)
        parameter._grad = moved
