"""`profile`: records what devices and host do in a block of code, and when."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, cast

from ..errors import UnsupportedError
from ..runtime.backend import Backend
from ..runtime.device import Device
from ..runtime.registry import device as device_of, device_async, opened
from ..runtime.timing import GPU_TIMESTAMPS
from .analysis import Summary, bottleneck_of, covered, kernel_runs, summarize, tick_of
from .peaks import Peaks, peaks_of, peaks_of_async
from .plot import draw
from .records import Bottleneck, HostSpan, KernelRun, Step
from .table import Table
from .tap import Tap
from .trace import trace_of
from .units import seconds_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Profile", "profile"]

_NOTES = (
    "bytes: of what kernels bind, so an upper bound where they read parts of it; of peak: of what was measured on this "
    "device",
)


class _Watched(NamedTuple):
    device: Device
    tap: Tap


class Profile:
    """The context manager of `profile`. Its figures can be read once the block has ended."""

    def __init__(self, device: str | Device | None) -> None:
        self._requested = device
        self._watched: list[_Watched] = []
        self._marks: list[float] = []
        self._begin = 0.0
        self._end: float | None = None
        self._peaks: dict[str, Peaks] = {}

    # From the beginning to the end.

    def __enter__(self) -> Profile:
        devices = opened() if self._requested is None else []
        devices = devices or [device_of(self._requested)]
        if not all(device.can_wait for device in devices):
            raise UnsupportedError(
                "a profile waits for what the device has measured, which needs JavaScript Promise Integration. Here "
                "use: async with optirs_web.profile() as p"
            )
        return self._start(devices)

    async def __aenter__(self) -> Profile:
        devices = opened() if self._requested is None else []
        devices = devices or [await device_async(self._requested)]
        for device in devices:
            await device.synchronize_async()
        return self._start(devices)

    def _start(self, devices: Sequence[Device]) -> Profile:
        if self._watched or self._end is not None:
            raise UnsupportedError("a profile can be used only once; call optirs_web.profile() again")
        if Device.recorder() is not None:
            raise UnsupportedError("a step that is being recorded does not run; profile the calls of the compiled step")
        if any(isinstance(device.backend, Tap) for device in devices):
            raise UnsupportedError("a profile is already running; profiles do not nest")
        for device in devices:
            device.flush()
            if device.can_wait:
                device.synchronize()
        for device in devices:
            tap = Tap(device.backend)
            device.exchange_backend(cast(Backend, tap))
            self._watched.append(_Watched(device, tap))
        self._begin = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                for device, _ in self._watched:
                    device.flush()
                    if device.can_wait:
                        device.synchronize()
        finally:
            self._stop()
        if kind is None:
            for device, tap in self._watched:
                tap.read_times()
                self._peaks[device.name] = peaks_of(device)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                for device, _ in self._watched:
                    await device.synchronize_async()
        finally:
            self._stop()
        if kind is None:
            for device, tap in self._watched:
                await tap.read_times_async()
                self._peaks[device.name] = await peaks_of_async(device)

    def _stop(self) -> None:
        self._end = perf_counter()
        for device, tap in self._watched:
            device.exchange_backend(tap.backend)

    def step(self) -> None:
        """Mark the end of a step: wait for the devices, so that what they did for the step belongs to it.

        The first step begins with the profile, the next one here.

        Raises:
            UnsupportedError: in a page that cannot wait; await `step_async` there.
        """
        for device, _ in self._watched:
            device.synchronize()
        self._marks.append(perf_counter())

    async def step_async(self) -> None:
        """The awaitable twin of `step`."""
        for device, _ in self._watched:
            await device.synchronize_async()
        self._marks.append(perf_counter())

    # The figures.

    def _check_ended(self) -> float:
        if self._end is None:
            raise UnsupportedError("the profile is still running; its figures are there when the block has ended")
        return self._end

    @property
    def total(self) -> float:
        """Seconds from the beginning of the block to its end, when the devices had finished."""
        return self._check_ended() - self._begin

    @cached_property
    def clock(self) -> str:
        """How kernels were timed, for each device where they differ.

        "gpu timestamps" (followed by their steps where a browser makes them coarse), "host clock around each kernel"
        (on `cpu`), or "wall time per submit": the device has no timestamps, so that each kernel was submitted by itself
        and waited for, and its time includes both.
        """
        clocks = self._clocks
        if len(set(clocks.values())) <= 1:
            return next(iter(clocks.values()), "")
        return ", ".join(f"{device}: {clock}" for device, clock in clocks.items())

    @cached_property
    def _clocks(self) -> dict[str, str]:
        clocks = {}
        for device, tap in self._watched:
            tick = tick_of(tap.submits) if tap.backend.clock == GPU_TIMESTAMPS else 0.0
            clocks[device.name] = tap.backend.clock + (f" in steps of {seconds_text(tick)}" if tick else "")
        return clocks

    @cached_property
    def kernels(self) -> list[KernelRun]:
        """Each run of a kernel and each copy, device by device, sorted by time."""
        self._check_ended()
        return [
            run
            for device, tap in self._watched
            for run in kernel_runs(tap.submits, device.name, self._begin, own_clock=tap.backend.clock == GPU_TIMESTAMPS)
        ]

    @cached_property
    def host(self) -> list[HostSpan]:
        """The work of the host as spans without gaps, which add up to `total`."""
        end = self._check_ended()
        spans, awaited = (
            [
                span._replace(start=span.start - self._begin, end=span.end - self._begin)
                for _, tap in self._watched
                for span in getattr(tap, attribute)
                if span.end <= end
            ]
            for attribute in ("spans", "awaited")
        )
        marks = [mark - self._begin for mark in self._marks]
        return covered(spans, awaited, [0.0, *marks, self.total])

    @cached_property
    def steps(self) -> list[Step]:
        """The steps that were marked."""
        marks = [0.0, *(mark - self._begin for mark in self._marks)]
        return [Step(number, *pair) for number, pair in enumerate(pairwise(marks))]

    @cached_property
    def peaks(self) -> dict[str, Peaks]:
        """The peaks of each device by name, measured once in a process, when its first profile ends."""
        self._check_ended()
        return self._peaks

    @cached_property
    def summaries(self) -> list[Summary]:
        """The kernels by name and device, sorted by time, the longest first."""
        return summarize(self.kernels, self.peaks)

    @cached_property
    def bottleneck(self) -> Bottleneck:
        """The kind of work that took most of the time, and the figures behind it.

        "launch": no kernel ran and no bytes moved, or a kernel was too small for the device; "bandwidth" and
        "arithmetic": kernels, by the peak of which they reach the larger share; "transfer": bytes went from or to the
        host while no kernel ran.
        """
        return bottleneck_of(self.kernels, self.host, self.peaks, self.total)

    def table(self) -> Table:
        """The kernels as a table: ``print(p.table())``. rich makes it prettier where it is installed."""
        notes = [*_NOTES, f"bottleneck: {self.bottleneck}"]
        if self.steps:
            mean = sum(step.seconds for step in self.steps) / len(self.steps)
            notes.insert(0, f"steps: {len(self.steps)}, {seconds_text(mean)} each")
        return Table(self._title, self.summaries, notes)

    def __str__(self) -> str:
        return str(self.table())

    @property
    def _title(self) -> str:
        devices = ", ".join(device.name for device, _ in self._watched)
        busy = sum(kernel.seconds for kernel in self.kernels)
        return (
            f"{devices}: {len(self.kernels):,} kernels in {seconds_text(busy)} of {seconds_text(self.total)} "
            f"({self.clock})"
        )

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as JSON that https://ui.perfetto.dev and chrome://tracing open.

        Each device is a track, with its submits and their kernels. The host is another, with submits, replays, reads,
        writes, waits, compilation and Python between them, and the steps have one of their own.

        Args:
            path: the file, which is replaced as a whole.
        """
        target = Path(path)
        partial = target.with_name(f".{target.name}.part")
        try:
            trace = trace_of(self.kernels, self.host, self.steps, self._clocks)
            partial.write_text(json.dumps(trace, ensure_ascii=False), "utf-8")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw the time of each kernel and its share of the measured peaks.

        Args:
            path: a PNG to write, which is replaced as a whole; None to write none.

        Returns:
            The figure of matplotlib, which a notebook shows.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return draw(self._title, self.summaries, path)


def profile(device: str | Device | None = None) -> Profile:
    """Measure what runs in a block: each kernel, and what the host did meanwhile.

    ``with ow.profile() as p``, or ``async with`` in a page that cannot wait. Where the device has timestamps, each
    kernel is a compute pass of its own between two of them, and a replayed step is taken apart into its kernels.
    Outside of the block nothing is measured and the profiler costs nothing. In the block a compiled step of
    15 small kernels took 1.5 times as long on a software adapter (passes of their own cost time), and no longer on
    `cpu`. When the block ends, the device's peaks are measured, once in a process, with up to 256 MiB of its memory.

    Args:
        device: the device to watch; None for all devices that are open when the block begins, or the one that
            `optirs_web.device` returns if none is open.

    Raises:
        UnsupportedError: a profile runs already, or a step is being recorded.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.ones((64, 64), device="cpu")
        >>> with ow.profile("cpu") as p:
        ...     y = (x @ x).relu()
        ...     p.step()
        >>> [(run.name, run.operations) for run in p.kernels]
        [('matmul', 524288), ('relu', 4096)]
        >>> p.kernels[1].bytes_read, p.kernels[1].bytes_written, p.clock
        (16384, 16384, 'host clock around each kernel')
        >>> p.bottleneck.name in ("launch", "bandwidth", "arithmetic", "transfer")
        True
    """
    return Profile(device)
