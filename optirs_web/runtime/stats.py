"""Counts of what a device was asked to do. Counts, unlike times, do not depend on a noisy machine."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["MemoryStats", "Stats"]


@dataclass(slots=True)
class Stats:
    """What happened since a device was opened; subtract two of them for what happened in between.

    Attributes:
        dispatches: kernels run.
        copies: copies between buffers of the device.
        submits: batches handed to the device.
        replays: recorded programs run.
        bytes_up: bytes written from the host.
        bytes_down: bytes read back to the host.
        bind_groups: bindings of buffers to a kernel made (not found in the cache).
        pipelines: kernels compiled (not found in the cache).
    """

    dispatches: int = 0
    copies: int = 0
    submits: int = 0
    replays: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    bind_groups: int = 0
    pipelines: int = 0

    def __sub__(self, earlier: Stats) -> Stats:
        return Stats(*(getattr(self, one.name) - getattr(earlier, one.name) for one in fields(self)))

    def __add__(self, other: Stats) -> Stats:
        return Stats(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def copy(self) -> Stats:
        """A snapshot that no longer moves."""
        return self + Stats()


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Memory of one device, in bytes unless said otherwise.

    Attributes:
        live_buffers: buffers in use, a number.
        live_bytes: bytes of the buffers in use.
        pooled_bytes: bytes kept for reuse; `trim` gives them back.
        peak_bytes: the most that was held at once, live and pooled.
        limit: what `set_memory_limit` allows, or None.
        reused: allocations served from the pool, a number.
        allocated: allocations served by the device, a number.
    """

    live_buffers: int
    live_bytes: int
    pooled_bytes: int
    peak_bytes: int
    limit: int | None
    reused: int
    allocated: int
