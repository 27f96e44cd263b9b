"""Memory that tensors of torch and of ours share, on the processor or on a GPU of NVIDIA, and whose work comes first.

On the processor torch has done what it returns from, and a device of ours does what it is waited for. On a GPU nobody
waits: torch's current stream and that of the device `cuda` wait for each other.
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
    """It lies in the memory of a GPU of NVIDIA. torch speaks of AMD's as "cuda", too."""
    return bool(theirs.is_cuda) and _torch().version.hip is None


def as_ours(theirs: Any) -> Any:
    """What a tensor of ours can be made of: on a GPU one of ours, over the same memory.

    Raises:
        DeviceNotAvailableError: there is no device `cuda` for that GPU.
    """
    return from_dlpack(theirs.detach()) if is_on_gpu(theirs) else theirs.detach()


def shown(ours: Tensor) -> Any:
    """A torch tensor over the memory of one of ours, after the work so far."""
    return _torch().from_dlpack(ours)


def current_stream(number: int) -> int:
    """The one that torch uses now on the GPU of that number, as DLPack tells of it."""
    return int(_torch().cuda.current_stream(number).cuda_stream) or 1  # 1 is CUDA's default stream there


def give(device: Device) -> None:
    """What torch does from now on comes after the work of the device so far."""
    sharing = device.backend.sharing
    if sharing is None:
        device.synchronize()
        return
    device.flush()
    sharing.go_before(current_stream(sharing.number))


def take(device: Device) -> None:
    """Work of the device from now on comes after what torch has done or enqueued."""
    sharing = device.backend.sharing
    if sharing is not None:
        sharing.come_after(current_stream(sharing.number))
