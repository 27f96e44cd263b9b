"""Work that the limits of a device do not allow runs on the other one under a placement policy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from ..errors import DeviceLimitError, DeviceNotAvailableError, OutOfDeviceMemoryError
from ..hostdata import outside
from ..runtime.device import Device
from ..tensors import Tensor

__all__ = ["holds", "is_of_a_limit", "other_device", "warn_once"]

_warned: set[tuple[str, str]] = set()


def is_of_a_limit(error: Exception, device: Device) -> bool:
    """No such work runs on this device, however much of its memory is free."""
    if isinstance(error, OutOfDeviceMemoryError):
        return error.asked > device.capabilities.max_buffer_bytes
    return isinstance(error, DeviceLimitError) and error.device == device.name


def other_device(device: Device, gpu: Callable[[], Device], cpu: Callable[[], Device]) -> Device | None:
    """The processor in place of a GPU, and a GPU in place of the processor; None where there is none."""
    try:
        return gpu() if device.name == "cpu" else cpu()
    except DeviceNotAvailableError:
        return None


def holds(device: Device, x: Tensor) -> bool:
    """The device can have a tensor of this size."""
    return x.dtype.nbytes(x.size) <= device.capabilities.max_buffer_bytes


def warn_once(operation: str, shapes: Sequence[tuple[int, ...]], error: Exception, device: Device, on: Device) -> None:
    """Say that an operation ran elsewhere, and why: once for each operation and device."""
    if (operation, device.name) in _warned:
        return
    _warned.add((operation, device.name))
    sizes = f" of {' and '.join(map(str, shapes))}" if shapes else ""
    reason = str(error).partition(". ")[0]
    warnings.warn(f"{operation}{sizes} ran on '{on.name}', not on '{device.name}': {reason}", stacklevel=outside())
