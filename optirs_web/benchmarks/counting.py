"""Counts of a call on a device, dispatches to bytes of memory, which are the same on a busy machine."""

from __future__ import annotations

from collections.abc import Callable

from ..memory.timeline import memory_timeline
from ..runtime.device import Device

__all__ = ["NAMES", "counts_of", "peak_of"]

NAMES = ("dispatches", "submits", "bytes_up", "bytes_down", "allocations")


def counts_of(device: Device, call: Callable[[], object]) -> dict[str, int]:
    """Call once, and return the counts of `NAMES`; allocations are only those that the pool did not serve."""
    device.synchronize()
    before, allocated = device.stats.copy(), device.memory_stats().allocated
    call()
    device.flush()
    happened = device.stats - before
    counts = {name: int(getattr(happened, name)) for name in NAMES[:-1]}
    return {**counts, "allocations": device.memory_stats().allocated - allocated}


def peak_of(device: Device, call: Callable[[], object]) -> int:
    """Call once, and return the largest number of bytes in use, above those in use before."""
    device.synchronize()
    before = device.memory_stats().live_bytes
    with memory_timeline(device) as timeline:
        call()
        device.synchronize()
    return max(0, timeline.peak - before)
