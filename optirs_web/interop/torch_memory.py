"""Memory shared by tensors of torch and of ours, on the processor or on an NVIDIA GPU, and the order of work on it.

On the processor torch's work is done when its calls return, and the host waits for that of our device. On a GPU the
host does not wait: torch's current stream and that of the device `cuda` wait for each other.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..dlpack import from_dlpack
from ..runtime.device import Device
from ..tensors import Tensor

__all__ = ["as_ours", "current_stream", "give", "is_on_gpu", "shown", "take"]


def _torch() -> Any:
    return importlib.import_module("torch")


def is_on_gpu(theirs: Any) -> bool:
    """Return whether a torch tensor is in the memory of an NVIDIA GPU. torch calls AMD's "cuda", too."""
    return bool(theirs.is_cuda) and _torch().version.hip is None


def as_ours(theirs: Any) -> Any:
    """Return data for a tensor of ours: on a GPU one of ours over the same memory, else the detached torch tensor.

    Raises:
        DeviceNotAvailableError: there is no device `cuda` for that GPU.
    """
    return from_dlpack(theirs.detach()) if is_on_gpu(theirs) else theirs.detach()


def shown(ours: Tensor) -> Any:
    """Return a torch tensor over the memory of one of ours, ordered after the work enqueued so far."""
    return _torch().from_dlpack(ours)


def current_stream(number: int) -> int:
    """Return the handle of the stream that torch uses now on the GPU of that number, in DLPack's numbering."""
    return int(_torch().cuda.current_stream(number).cuda_stream) or 1  # 1 is CUDA's default stream there


def give(device: Device) -> None:
    """Order torch's work from now on after the work of the device so far."""
    sharing = device.backend.sharing
    if sharing is None:
        device.synchronize()
        return
    device.flush()
    sharing.go_before(current_stream(sharing.number))


def take(device: Device) -> None:
    """Order the device's work from now on after torch's work so far."""
    sharing = device.backend.sharing
    if sharing is not None:
        sharing.come_after(current_stream(sharing.number))
