"""What a device's memory is used for: figures, a timeline of what was taken and let go, and the pool given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.registry import device as device_of, opened

if TYPE_CHECKING:
    from ..runtime.device import Device
    from ..runtime.stats import MemoryStats
    from .timeline import MemoryTimeline

__all__ = ["empty_cache", "memory_stats", "memory_timeline"]


def memory_stats(device: str | Device | None = None) -> MemoryStats:
    """Memory held on a device: what is in use and what is kept for reuse, limits, counts, fragmentation.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.zeros((1000,), device="cpu")
        >>> stats = ow.memory_stats("cpu")
        >>> stats.live_bytes >= stats.asked_bytes >= 4000
        True
    """
    return device_of(device).memory_stats()


def empty_cache(device: str | Device | None = None) -> None:
    """Give memory that is kept for reuse back to the device, or to every open device where none is named.

    What is needed next is allocated again, which takes longer. There is no need to call it when memory is short: before
    that is an error, the pool is given back anyway.

    Example:
        >>> import optirs_web as ow
        >>> ow.empty_cache("cpu")
        >>> ow.memory_stats("cpu").pooled_bytes
        0
    """
    for one in opened() if device is None else [device_of(device)]:
        one.trim()


def memory_timeline(device: str | Device | None = None) -> MemoryTimeline:
    """What happens to a device's memory in a ``with`` block, one event after the other.

    Nothing is kept, and nothing costs time, where no timeline is open.

    Example:
        >>> import optirs_web as ow
        >>> with ow.memory_timeline("cpu") as timeline:
        ...     x = ow.full((1024,), 2.0, device="cpu").exp()
        >>> timeline.peak >= 8192
        True
        >>> timeline.live_at_peak().total() == timeline.peak
        True
    """
    from .timeline import MemoryTimeline  # imported where it is used: not every training needs it

    return MemoryTimeline(device_of(device))
