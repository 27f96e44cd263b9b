"""What follows from what was measured: device clocks set by the host's, shares of the peaks, the bottleneck."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..runtime.timing import Work
from .costs import costs_of
from .peaks import Peaks
from .records import Bottleneck, HostSpan, KernelRun
from .tap import Submit
from .units import bytes_text, rate_text, seconds_text, share_text

__all__ = [
    "Interval",
    "Summary",
    "bottleneck_of",
    "bound_of",
    "covered",
    "kernel_runs",
    "summarize",
    "tick_of",
    "union",
]

Interval = tuple[float, float]


# Kernels on the host's clock.


def kernel_runs(submits: Sequence[Submit], device: str, begin: float, *, own_clock: bool) -> list[KernelRun]:
    """The kernels of a device, in seconds since `begin`."""
    offset = _offset(submits) if own_clock else 0.0
    runs = []
    for number, one in enumerate(submits):
        times = one.times or []
        shift = offset
        if own_clock and times:  # should the clocks run apart
            late = times[-1].end + offset - one.done
            shift -= max(0.0, min(late, times[0].start + offset - one.start))
        for work in times:
            start = work.start + shift - begin
            runs.append(_run(work.works, start, max(start, work.end + shift - begin), device, number))
    return runs


def _offset(submits: Sequence[Submit]) -> float:
    """From a device's clock to the host's.

    A device that waits for work begins when it is sent. Certain is that no kernel runs before the host has begun with
    its submit, nor after the host knew it done.
    """
    timed = [(one, one.times[0].start, one.times[-1].end) for one in submits if one.times]
    if not timed:
        return 0.0
    likely = max(one.sent - first for one, first, _ in timed)
    most = min(one.done - last for one, _, last in timed)
    return max(min(likely, most), max(one.start - first for one, first, _ in timed))


def _run(works: Sequence[Work], start: float, end: float, device: str, submit: int) -> KernelRun:
    costs = [costs_of(one) for one in works]
    known = [one.operations for one in costs if one.operations is not None]
    first = works[0]
    name = first.kernel.name if first.kernel is not None else "copy"
    return KernelRun(
        name=name if len(works) == 1 else f"{len(works)} kernels",
        start=start,
        end=end,
        bytes_read=sum(one.bytes_read for one in costs),
        bytes_written=sum(one.bytes_written for one in costs),
        operations=sum(known) if len(known) == len(costs) else None,
        grid=first.grid if len(works) == 1 else (0, 0, 0),
        parameters=costs[0].parameters if len(works) == 1 else {},
        device=device,
        submit=submit,
    )


def tick_of(submits: Iterable[Submit]) -> float:
    """Seconds that a device's clock moves at once, where that is a microsecond or more; otherwise 0."""
    times = [time for one in submits for timed in one.times or () for time in (timed.start, timed.end)]
    if len(times) < 8:
        return 0.0
    nanoseconds = math.gcd(*(round((one - times[0]) * 1e9) for one in times))
    return nanoseconds * 1e-9 if nanoseconds >= 1000 else 0.0


# Intervals.


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time without overlaps, in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def _outside(interval: Interval, others: Sequence[Interval]) -> Iterator[Interval]:
    """The parts of an interval that lie in none of the others, which are in order and apart."""
    start, end = interval
    for first, last in others:
        if first > start:
            yield (start, min(first, end))
        start = max(start, last)
        if start >= end:
            return
    yield (start, end)


def covered(spans: Sequence[HostSpan], awaited: Sequence[HostSpan], marks: Sequence[float]) -> list[HostSpan]:
    """The spans, and between them what tasks awaited, and "python": all the time from the first mark to the last.

    What fills a gap ends at a mark, so that it lies in one step.
    """
    found = list(spans)
    for one in awaited:  # of several that wait at once, the first
        found += [one._replace(start=start, end=end) for start, end in _gaps((one.start, one.end), found, marks)]
    found += [HostSpan("python", start, end) for start, end in _gaps((marks[0], marks[-1]), found, marks)]
    return sorted(found, key=lambda one: one.start)


def _gaps(interval: Interval, spans: Sequence[HostSpan], marks: Sequence[float]) -> Iterator[Interval]:
    """The parts of an interval that no span fills, cut at the marks."""
    for start, end in _outside(interval, union((one.start, one.end) for one in spans)):
        cuts = [start, *(one for one in marks if start < one < end), end]
        yield from (pair for pair in pairwise(cuts) if pair[0] < pair[1])


# Shares of the peaks.


class Summary(NamedTuple):
    """All runs of a kernel on a device.

    Attributes:
        name: the kernel's.
        device: where it ran.
        launches: how often.
        seconds: in all.
        share: of the time of all kernels.
        nbytes: read and written, in all.
        operations: in all; None where they are not known.
        of_bandwidth: bytes in a second by the device's measured peak; above 1 where a cache served them.
        of_arithmetic: operations in a second by the device's measured peak; None where they are not known.
        bound: "launch", "bandwidth" or "arithmetic", as `bound_of` tells for most of its time.
    """

    name: str
    device: str
    launches: int
    seconds: float
    share: float
    nbytes: int
    operations: int | None
    of_bandwidth: float
    of_arithmetic: float | None
    bound: str


def bound_of(run: KernelRun, peaks: Peaks) -> str:
    """What keeps a kernel from being faster: "launch", "bandwidth" or "arithmetic".

    That is what would take longest at the measured peaks: to run any kernel, to move its bytes, or its operations, as
    in the roofline model (Williams, Waterman and Patterson 2009).
    """
    least = {
        "launch": peaks.launch,
        "bandwidth": _by(run.nbytes, peaks.bandwidth),
        "arithmetic": _by(run.operations or 0, peaks.arithmetic),
    }
    return max(least, key=lambda one: least[one])


def summarize(kernels: Sequence[KernelRun], peaks: Mapping[str, Peaks]) -> list[Summary]:
    """Kernels by name, those that took most first."""
    groups: dict[tuple[str, str], list[KernelRun]] = {}
    for one in kernels:
        groups.setdefault((one.device, one.name), []).append(one)
    total = sum(one.seconds for one in kernels)
    found = [_summary(runs, peaks[device], total) for (device, _), runs in groups.items()]
    return sorted(found, key=lambda one: -one.seconds)


def _summary(runs: Sequence[KernelRun], peaks: Peaks, total: float) -> Summary:
    seconds = sum(one.seconds for one in runs)
    nbytes = sum(one.nbytes for one in runs)
    known = [one.operations for one in runs if one.operations is not None]
    operations = sum(known) if len(known) == len(runs) else None
    bounds: dict[str, float] = {}
    for one in runs:
        bound = bound_of(one, peaks)
        bounds[bound] = bounds.get(bound, 0.0) + one.seconds
    return Summary(
        name=runs[0].name,
        device=runs[0].device,
        launches=len(runs),
        seconds=seconds,
        share=_by(seconds, total),
        nbytes=nbytes,
        operations=operations,
        of_bandwidth=_by(_by(nbytes, seconds), peaks.bandwidth),
        of_arithmetic=None if operations is None else _by(_by(operations, seconds), peaks.arithmetic),
        bound=max(bounds, key=lambda one: bounds[one]),
    )


def _by(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


# The bottleneck.


def bottleneck_of(
    kernels: Sequence[KernelRun], host: Sequence[HostSpan], peaks: Mapping[str, Peaks], total: float
) -> Bottleneck:
    """Where the time went.

    A kernel's time is that of its bound; of reads and writes counts what lies outside of kernels; the rest, in which
    no kernel ran and no bytes moved, is launch.
    """
    seconds = dict.fromkeys(("launch", "bandwidth", "arithmetic", "transfer"), 0.0)
    for run in kernels:
        seconds[bound_of(run, peaks[run.device])] += run.seconds
    busy = union((one.start, one.end) for one in kernels)
    moving = [one for one in host if one.kind in ("read", "write")]
    for one in moving:
        seconds["transfer"] += sum(end - start for start, end in _outside((one.start, one.end), busy))
    own = sum(one.seconds for one in host if one.kind == "profiler")
    seconds["launch"] += max(0.0, total - own - sum(seconds.values()))
    name = max(seconds, key=lambda one: seconds[one])
    of_all = f"{share_text(_by(seconds[name], total - own))} of {seconds_text(total - own)}"
    return Bottleneck(name, seconds, f"{of_all}; {_REASONS[name](kernels, moving, peaks)}")


def _launch_reason(kernels: Sequence[KernelRun], _: Sequence[HostSpan], peaks: Mapping[str, Peaks]) -> str:
    busy = sum(one.seconds for one in kernels)
    least = max((one.launch for one in peaks.values()), default=0.0)
    return (
        f"the {len(kernels)} kernels ran for {seconds_text(busy)}, and one takes {seconds_text(least)} even for a "
        "single element: give it larger tensors, or compile the step if it is not"
    )


def _rate_reason(bound: str, kernels: Sequence[KernelRun], peaks: Mapping[str, Peaks]) -> str:
    runs = [one for one in kernels if bound_of(one, peaks[one.device]) == bound]
    seconds = sum(one.seconds for one in runs)
    amount = sum((one.nbytes if bound == "bandwidth" else one.operations or 0) for one in runs)
    peak = max(getattr(peaks[one.device], bound) for one in runs)
    unit = "B/s" if bound == "bandwidth" else "op/s"
    most = max(summarize(runs, peaks), key=lambda one: one.seconds)
    rate = _by(amount, seconds)
    far = ", far below it: they are slow themselves, or too small to fill the device" if rate < peak / 10 else ""
    return (
        f"{rate_text(rate, unit)} in these kernels, where {rate_text(peak, unit)} was measured{far}; "
        f"most of it in '{most.name}'"
    )


def _transfer_reason(_: Sequence[KernelRun], moving: Sequence[HostSpan], __: Mapping[str, Peaks]) -> str:
    parts = []
    for kind, way in (("read", "to the host"), ("write", "to the device")):
        spans = [one for one in moving if one.kind == kind]
        parts.append(f"{bytes_text(sum(one.details.get('bytes', 0) for one in spans))} {way} in {len(spans)} calls")
    return f"{' and '.join(parts)}: read less often, or await what is read"


_REASONS = {
    "launch": _launch_reason,
    "bandwidth": lambda kernels, _, peaks: _rate_reason("bandwidth", kernels, peaks),
    "arithmetic": lambda kernels, _, peaks: _rate_reason("arithmetic", kernels, peaks),
    "transfer": _transfer_reason,
}
