"""State dicts: the values of a module by torch's names, read and, all of them or none, written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import CheckpointError
from ..hostdata import HostData, host_data
from ..tensors import Parameter, Tensor
from .buffers import Buffer

if TYPE_CHECKING:
    from .module import Module

__all__ = ["IncompatibleKeys", "load_state_dict", "state_of"]


class IncompatibleKeys(NamedTuple):
    """The names that `load_state_dict(strict=False)` ignored: those missing in the state dict, and in the module."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def state_of(module: Module, prefix: str = "") -> Iterator[tuple[str, Parameter | Buffer, bool]]:
    """Yield parameters and persistent buffers by name, in torch's order, and whether a state dict may lack them.

    Tied parameters are listed under each of their names.
    """
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield prefix + name, parameter, False
    for name, buffer in module._buffers.items():
        if buffer is not None and buffer.persistent:
            yield prefix + name, buffer, name in module.may_be_missing
    for name, child in module._modules.items():
        if child is not None:
            yield from state_of(child, f"{prefix}{name}.")


def load_state_dict(module: Module, state: Mapping[str, Any], strict: bool) -> IncompatibleKeys:
    """Write a state dict into a module; see `Module.load_state_dict`."""
    entries = list(state_of(module))
    names = {name for name, _, _ in entries}
    missing = [name for name, _, may_be_missing in entries if name not in state and not may_be_missing]
    unexpected = [name for name in state if name not in names]
    pairs = [(name, tensor, _value(state[name], tensor)) for name, tensor, _ in entries if name in state]
    wrong = [
        f"{name} is {value.dtype} of shape {value.shape} there and {tensor.dtype} of shape {tensor.shape} here"
        for name, tensor, value in pairs
        if value.shape != tensor.shape or value.dtype is not tensor.dtype
    ]
    if strict:
        wrong += [f"{name} is missing" for name in missing]
        wrong += [f"{name} is not in the module" for name in unexpected]
    if wrong:
        hint = "; load_state_dict(..., strict=False) ignores names that only one of the two has"
        raise CheckpointError(
            f"the state dict does not fit {type(module).__name__}: {'; '.join(wrong)}"
            + hint * (strict and bool(missing or unexpected))
        )
    for _, tensor, value in pairs:
        tensor.assign(value)
    return IncompatibleKeys(missing, unexpected)


def _value(value: Any, target: Tensor) -> Tensor | HostData:
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "detach"):  # torch's, which may require gradients and be on a device
        value = value.detach().cpu()
    return host_data(value, target.dtype)
