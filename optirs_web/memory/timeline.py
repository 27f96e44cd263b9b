"""Record the events of a device's memory over time, and compute peaks and live bytes by kernel from them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..runtime.registry import device as device_of
from .reports import BEFORE, as_json, plotted, summarized

if TYPE_CHECKING:
    from ..runtime.buffer import View
    from ..runtime.device import Device
    from ..runtime.kernels import Kernel

__all__ = ["MemoryEvent", "MemoryTimeline", "memory_timeline"]

_TAKEN = ("allocate", "reuse")
_LET_GO = ("release", "free")

STEP, _NO_KERNEL = "(compiled steps)", "(no kernel)"
"""Labels of memory that compiled steps keep, and that no kernel has used yet."""


@dataclass(slots=True)
class MemoryEvent:
    """An event of a device's memory. Sizes are in bytes, rounded up to the class of size.

    Attributes:
        time: seconds since the timeline began. A buffer that Python has freed is seen at the next allocation.
        kind: "allocate" (from the device), "reuse" (from the pool), "release" (to the pool), "free" (to the device),
            "trim" (the pool was returned to the device), "exhausted" (an allocation failed, before anything was done
            about that), "replay" (of a compiled step).
        nbytes: of the buffer; of the pool that was trimmed; that were requested; of the step's own memory.
        live: in use afterwards.
        pooled: kept for reuse afterwards.
        buffer: a number for the memory from when it is taken until it is let go; None where the event is about no
            buffer, or one from before the timeline.
        kernel: the first kernel that used the buffer, "" while there is none; "(compiled steps)" for memory of a
            step's own, which is in use as long as the step is kept.
        after: the kernel that was dispatched last before the event, "" if there was none.
    """

    time: float
    kind: str
    nbytes: int
    live: int
    pooled: int
    buffer: int | None
    kernel: str
    after: str


class MemoryTimeline:
    """The context manager of `optirs_web.memory_timeline`. It may be read while it is open, and afterwards.

    Attributes:
        device: whose memory.
        events: the events, in the order of time.
        first_live: bytes in use when it began.
        first_pooled: bytes kept for reuse when it began.
    """

    def __init__(self, device: Device) -> None:
        """Made by `optirs_web.memory_timeline`."""
        self.device = device
        self.events: list[MemoryEvent] = []
        self.first_live = self.first_pooled = 0
        self._began = 0.0
        self._last_kernel = ""
        self._buffers = 0
        self._taken: dict[Any, MemoryEvent] = {}  # of each handle that was taken since

    def __enter__(self) -> MemoryTimeline:
        stats = self.device.memory_stats()
        self.first_live, self.first_pooled = stats.live_bytes, stats.pooled_bytes
        self._began = time.perf_counter()
        self.device.memory_observers.append(self._happened)
        self.device.observers.append(self._dispatched)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.device.memory_stats()  # which sees what was let go within the block
        finally:
            self.device.memory_observers.remove(self._happened)
            self.device.observers.remove(self._dispatched)
            self._taken.clear()

    def _dispatched(self, kernel: Kernel, views: Sequence[View]) -> None:
        self._last_kernel = kernel.name
        for view in views:
            event = self._taken.get(view.buffer.handle)
            if event is not None and not event.kernel:
                event.kernel = kernel.name

    def _happened(self, kind: str, handle: Any, nbytes: int) -> None:
        if kind == "record":
            self._taken[handle].kernel = STEP
            return
        owner = self._taken.pop(handle, None) if kind in _LET_GO else None
        event = MemoryEvent(
            time.perf_counter() - self._began,
            kind,
            nbytes,
            self.device.live_bytes,
            self.device.pooled_bytes,
            None if owner is None else owner.buffer,
            "" if owner is None else owner.kernel,
            self._last_kernel,
        )
        if kind in _TAKEN:
            event.buffer, self._buffers = self._buffers, self._buffers + 1
            self._taken[handle] = event
        self.events.append(event)

    @property
    def peak(self) -> int:
        """The most bytes that were in use at once."""
        return max((event.live for event in self.events), default=self.first_live)

    @property
    def peak_held(self) -> int:
        """The most bytes that were held at once, in use and for reuse."""
        return max((event.live + event.pooled for event in self.events), default=self.first_live + self.first_pooled)

    @property
    def peak_index(self) -> int | None:
        """The index of the first event at which `peak` was reached; None where that was at the beginning."""
        peak = self.peak
        return None if peak == self.first_live else [event.live for event in self.events].index(peak)

    def live_by_kernel(self) -> Iterator[Counter[str]]:
        """Yield the bytes in use by the first kernel that used them: at the beginning, then after each event.

        Memory in use at the beginning counts as "(there before)", that of compiled steps as "(compiled steps)", memory
        that no kernel has used yet as "(no kernel)". The counter that is yielded is updated in place; copy it to keep
        it.
        """
        kernels = {event.buffer: event.kernel or _NO_KERNEL for event in self.events if event.kind in _TAKEN}
        live = Counter({BEFORE: self.first_live})
        yield live
        for event in self.events:
            kernel = kernels.get(event.buffer, BEFORE)
            live[kernel] += event.nbytes * ((event.kind in _TAKEN) - (event.kind in _LET_GO))
            yield live

    def live_at_peak(self) -> Counter[str]:
        """Bytes in use by kernel, as `live_by_kernel` has them, when the most was in use."""
        last = -1 if self.peak_index is None else self.peak_index
        for index, live in enumerate(self.live_by_kernel(), start=-1):
            if index == last:
                return +live
        raise AssertionError("there is a state after each event")

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the timeline as JSON, and write it to the file `path` if that is given.

        An object of ``format`` ("optirs_web.memory_timeline"), ``version`` (1), ``device`` (its name), ``limit`` (bytes
        or null), ``first_live``, ``first_pooled``, ``peak``, ``peak_held`` (bytes) and ``events``: a list of objects
        with the attributes of `MemoryEvent`.
        """
        return as_json(self, path)

    def plot(self, path: str | os.PathLike[str] | None = None, against: Literal["events", "time"] = "events") -> Any:
        """Draw the timeline and return matplotlib's Figure; write it to the file `path` if that is given.

        It shows the bytes in use, by the first kernel that used them, and above them those kept for reuse.

        Args:
            path: where to write it, in the format of its suffix.
            against: "events" spaces events evenly; "time" has milliseconds.

        Raises:
            ImportError: matplotlib is not installed; the message says how to.
            ValueError: `against` is something else.
        """
        return plotted(self, path, against)

    def summary(self) -> str:
        """Return a table as text: counts and bytes by kind of event, and the bytes in use at the peak by kernel."""
        return summarized(self)


def memory_timeline(device: str | Device | None = None) -> MemoryTimeline:
    """Return a context manager that records each event of a device's memory in a ``with`` block.

    Without an open timeline nothing is recorded and nothing costs time.

    Example:
        >>> import optirs_web as ow
        >>> with ow.memory_timeline("cpu") as timeline:
        ...     x = ow.full((1024,), 2.0, device="cpu").exp()
        >>> timeline.peak >= 8192
        True
        >>> timeline.live_at_peak().total() == timeline.peak
        True
    """
    return MemoryTimeline(device_of(device))
