"""Memory of a device: statistics, and `empty_cache`, which trims the pool. `timeline` records its events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.registry import device as device_of, opened

if TYPE_CHECKING:
    from ..runtime.device import Device
    from ..runtime.stats import MemoryStats

__all__ = ["empty_cache", "memory_stats"]


def memory_stats(device: str | Device | None = None) -> MemoryStats:
    """Return statistics of a device's memory: bytes in use and kept for reuse, limits, counts, fragmentation.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.zeros((1000,), device="cpu")
        >>> stats = ow.memory_stats("cpu")
        >>> stats.live_bytes >= stats.asked_bytes >= 4000
        True
    """
    return device_of(device).memory_stats()


def empty_cache(device: str | Device | None = None) -> None:
    """Return memory that is kept for reuse to the device, or to every open device where none is named.

    Later tensors are allocated anew, which takes longer. There is no need to call it when memory is short: before an
    allocation fails, the pool is returned anyway.

    Example:
        >>> import optirs_web as ow
        >>> ow.empty_cache("cpu")
        >>> ow.memory_stats("cpu").pooled_bytes
        0
    """
    for opened_device in opened() if device is None else [device_of(device)]:
        opened_device.trim()
