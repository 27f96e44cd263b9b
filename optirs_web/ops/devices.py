"""Copies from one device to another."""

from __future__ import annotations

from ..autograd import record
from ..runtime.device import Device
from ..runtime.registry import device as device_of
from ..tensor_class import Tensor, tensor

__all__ = ["to_device"]


def to_device(x: Tensor, device: str | Device) -> Tensor:
    """A copy on another device, or the tensor itself if it is there already. Waits for the values.

    Gradient: g, copied back to the device of x.

    Raises:
        DeviceNotAvailableError: there is no such device here.

    Example:
        >>> import optirs_web as ow
        >>> ow.ones((2,), device="cpu").to("cpu")
        <Tensor (2,) float32 on cpu>
    """
    target = device_of(device)
    source = x.device
    if target is source:
        return x
    return record(tensor(x.detach(), device=target, dtype=x.dtype), (x, lambda g, _: to_device(g, source)))
