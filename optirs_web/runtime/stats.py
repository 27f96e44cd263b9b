"""Counts of what a device was asked to do. Counts, unlike times, do not depend on a noisy machine."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["MemoryStats", "Stats"]


@dataclass(slots=True)
class Stats:
    """Counts of operations and bytes since a device was opened; subtract two of them for the counts in between.

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
        return Stats(*(getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self)))

    def __add__(self, other: Stats) -> Stats:
        return Stats(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def copy(self) -> Stats:
        """A snapshot that no longer moves."""
        return self + Stats()


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Memory of one device, in bytes unless said otherwise.

    Attributes:
        live_buffers: buffers in use, a number.
        live_bytes: bytes of the buffers in use. A compiled step's own memory is in use as long as the step is kept.
        asked_bytes: what the owners of the buffers in use asked for. Sizes are rounded up to classes, so that freed
            memory fits again.
        pooled_bytes: bytes kept for reuse; `trim` gives them back.
        pool: how many buffers are kept for reuse, by their size.
        peak_bytes: the most that was held at once, live and pooled.
        limit: what `set_memory_limit` allows, or None.
        reused: allocations served from the pool, a number.
        allocated: allocations served by the device, a number.
        trims: times that the pool was given back to the device.
        recovered: times that there was no room at first, and was once the pool had been given back.
    """

    live_buffers: int
    live_bytes: int
    asked_bytes: int
    pooled_bytes: int
    pool: dict[int, int]
    peak_bytes: int
    limit: int | None
    reused: int
    allocated: int
    trims: int
    recovered: int

    @property
    def largest_free(self) -> int:
        """The largest buffer kept for reuse, in bytes."""
        return max(self.pool, default=0)

    @property
    def internal_fragmentation(self) -> float:
        """The share of the bytes in use that nobody asked for, from 0 to 1: ``1 - asked_bytes / live_bytes``.

        Classes lie at most 25% apart, so it is at most 0.2 but for buffers below 256 bytes.
        """
        return 1 - self.asked_bytes / self.live_bytes if self.live_bytes else 0.0

    @property
    def external_fragmentation(self) -> float:
        """The share of the pool that the largest request it can serve leaves: ``1 - largest_free / pooled_bytes``.

        0 is a pool of one piece. A device's buffers cannot be joined, so the others are of no use to a larger request,
        and are given back when that finds no room.
        """
        return 1 - self.largest_free / self.pooled_bytes if self.pooled_bytes else 0.0

    @property
    def pooled_share(self) -> float:
        """The share of what is held that nobody uses: ``pooled_bytes / (live_bytes + pooled_bytes)``."""
        held = self.live_bytes + self.pooled_bytes
        return self.pooled_bytes / held if held else 0.0
