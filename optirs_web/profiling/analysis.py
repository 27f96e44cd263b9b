"""Evaluate the records of a profile: align device clocks with the host's, compute shares of peaks, the bottleneck."""

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
    """Return the runs of a device's kernels, with times in seconds since `begin`."""
    offset = _offset(submits) if own_clock else 0.0
    runs = []
    for number, submit in enumerate(submits):
        times = submit.times or []
        shift = offset
        if own_clock and times:  # should the clocks run apart
            late = times[-1].end + offset - submit.done
            shift -= max(0.0, min(late, times[0].start + offset - submit.start))
        for work in times:
            start = work.start + shift - begin
            runs.append(_run(work.works, start, max(start, work.end + shift - begin), device, number))
    return runs


def _offset(submits: Sequence[Submit]) -> float:
    """Return the seconds to add to a device's clock to get the host's.

    A device that waits for work begins when it is sent. No kernel runs before the host began its submit, nor after
    the host knew that the submit was done.
    """
    timed = [(submit, submit.times[0].start, submit.times[-1].end) for submit in submits if submit.times]
    if not timed:
        return 0.0
    likely = max(submit.sent - first for submit, first, _ in timed)
    latest = min(submit.done - last for submit, _, last in timed)
    return max(min(likely, latest), max(submit.start - first for submit, first, _ in timed))


def _run(works: Sequence[Work], start: float, end: float, device: str, submit: int) -> KernelRun:
    costs = [costs_of(work) for work in works]
    counts = [cost.operations for cost in costs if cost.operations is not None]
    first = works[0]
    name = first.kernel.name if first.kernel is not None else "copy"
    return KernelRun(
        name=name if len(works) == 1 else f"{len(works)} kernels",
        start=start,
        end=end,
        bytes_read=sum(cost.bytes_read for cost in costs),
        bytes_written=sum(cost.bytes_written for cost in costs),
        operations=sum(counts) if len(counts) == len(costs) else None,
        grid=first.grid if len(works) == 1 else (0, 0, 0),
        parameters=costs[0].parameters if len(works) == 1 else {},
        device=device,
        submit=submit,
    )


def tick_of(submits: Iterable[Submit]) -> float:
    """Return the resolution of a device's clock in seconds where it is a microsecond or more, otherwise 0."""
    times = [time for submit in submits for timed in submit.times or () for time in (timed.start, timed.end)]
    if len(times) < 8:
        return 0.0
    nanoseconds = math.gcd(*(round((time - times[0]) * 1e9) for time in times))
    return nanoseconds * 1e-9 if nanoseconds >= 1000 else 0.0


# Intervals.


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals as sorted intervals that do not overlap."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def _outside(interval: Interval, others: Sequence[Interval]) -> Iterator[Interval]:
    """Yield the parts of an interval that are in none of the others, which are sorted and do not overlap."""
    start, end = interval
    for first, last in others:
        if first > start:
            yield (start, min(first, end))
        start = max(start, last)
        if start >= end:
            return
    yield (start, end)


def covered(spans: Sequence[HostSpan], awaited: Sequence[HostSpan], marks: Sequence[float]) -> list[HostSpan]:
    """Return sorted spans without gaps from the first mark to the last: the given ones, what tasks awaited, "python".

    A span that fills a gap is cut at the marks, so that it belongs to one step.
    """
    filled = list(spans)
    for span in awaited:  # of several that wait at once, the first
        filled += [span._replace(start=start, end=end) for start, end in _gaps((span.start, span.end), filled, marks)]
    filled += [HostSpan("python", start, end) for start, end in _gaps((marks[0], marks[-1]), filled, marks)]
    return sorted(filled, key=lambda span: span.start)


def _gaps(interval: Interval, spans: Sequence[HostSpan], marks: Sequence[float]) -> Iterator[Interval]:
    """Yield the parts of an interval that no span covers, cut at the marks."""
    for start, end in _outside(interval, union((span.start, span.end) for span in spans)):
        cuts = [start, *(mark for mark in marks if start < mark < end), end]
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
        bound: "launch", "bandwidth" or "arithmetic", as `bound_of` has it for most of its time.
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
    """Return the limit of a kernel's speed: "launch", "bandwidth" or "arithmetic".

    It is what would take longest at the measured peaks: launching any kernel, moving its bytes, or its operations, as
    in the roofline model (Williams, Waterman and Patterson 2009).
    """
    least = {
        "launch": peaks.launch,
        "bandwidth": _by(run.nbytes, peaks.bandwidth),
        "arithmetic": _by(run.operations or 0, peaks.arithmetic),
    }
    return max(least, key=lambda bound: least[bound])


def summarize(kernels: Sequence[KernelRun], peaks: Mapping[str, Peaks]) -> list[Summary]:
    """Return one summary for each kernel and device, sorted by time, the longest first."""
    groups: dict[tuple[str, str], list[KernelRun]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.device, kernel.name), []).append(kernel)
    total = sum(kernel.seconds for kernel in kernels)
    summaries = [_summary(runs, peaks[device], total) for (device, _), runs in groups.items()]
    return sorted(summaries, key=lambda summary: -summary.seconds)


def _summary(runs: Sequence[KernelRun], peaks: Peaks, total: float) -> Summary:
    seconds = sum(run.seconds for run in runs)
    nbytes = sum(run.nbytes for run in runs)
    counts = [run.operations for run in runs if run.operations is not None]
    operations = sum(counts) if len(counts) == len(runs) else None
    bounds: dict[str, float] = {}
    for run in runs:
        bound = bound_of(run, peaks)
        bounds[bound] = bounds.get(bound, 0.0) + run.seconds
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
        bound=max(bounds, key=lambda bound: bounds[bound]),
    )


def _by(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


# The bottleneck.


def bottleneck_of(
    kernels: Sequence[KernelRun], host: Sequence[HostSpan], peaks: Mapping[str, Peaks], total: float
) -> Bottleneck:
    """Return where the time of a profile of `total` seconds was spent.

    A kernel's time counts as that of its bound; reads and writes count as far as no kernel ran meanwhile; the remaining
    time, in which no kernel ran and no bytes moved, is "launch".
    """
    seconds = dict.fromkeys(("launch", "bandwidth", "arithmetic", "transfer"), 0.0)
    for run in kernels:
        seconds[bound_of(run, peaks[run.device])] += run.seconds
    busy = union((kernel.start, kernel.end) for kernel in kernels)
    moving = [span for span in host if span.kind in ("read", "write")]
    for span in moving:
        seconds["transfer"] += sum(end - start for start, end in _outside((span.start, span.end), busy))
    overhead = sum(span.seconds for span in host if span.kind == "profiler")
    seconds["launch"] += max(0.0, total - overhead - sum(seconds.values()))
    name = max(seconds, key=lambda bound: seconds[bound])
    of_all = f"{share_text(_by(seconds[name], total - overhead))} of {seconds_text(total - overhead)}"
    return Bottleneck(name, seconds, f"{of_all}; {_REASONS[name](kernels, moving, peaks)}")


def _launch_reason(kernels: Sequence[KernelRun], _: Sequence[HostSpan], peaks: Mapping[str, Peaks]) -> str:
    busy = sum(kernel.seconds for kernel in kernels)
    least = max((peak.launch for peak in peaks.values()), default=0.0)
    return (
        f"the {len(kernels)} kernels ran for {seconds_text(busy)}, and one takes {seconds_text(least)} even for a "
        "single element: give it larger tensors, or compile the step if it is not"
    )


def _rate_reason(bound: str, kernels: Sequence[KernelRun], peaks: Mapping[str, Peaks]) -> str:
    runs = [kernel for kernel in kernels if bound_of(kernel, peaks[kernel.device]) == bound]
    seconds = sum(run.seconds for run in runs)
    amount = sum((run.nbytes if bound == "bandwidth" else run.operations or 0) for run in runs)
    peak = max(getattr(peaks[run.device], bound) for run in runs)
    unit = "B/s" if bound == "bandwidth" else "op/s"
    slowest = max(summarize(runs, peaks), key=lambda summary: summary.seconds)
    rate = _by(amount, seconds)
    far = ", far below it: they are slow themselves, or too small to fill the device" if rate < peak / 10 else ""
    return (
        f"{rate_text(rate, unit)} in these kernels, where {rate_text(peak, unit)} was measured{far}; "
        f"most of it in '{slowest.name}'"
    )


def _transfer_reason(_: Sequence[KernelRun], moving: Sequence[HostSpan], __: Mapping[str, Peaks]) -> str:
    parts = []
    for kind, way in (("read", "to the host"), ("write", "to the device")):
        spans = [span for span in moving if span.kind == kind]
        parts.append(f"{bytes_text(sum(span.details.get('bytes', 0) for span in spans))} {way} in {len(spans)} calls")
    return f"{' and '.join(parts)}: read less often, or await what is read"


_REASONS = {
    "launch": _launch_reason,
    "bandwidth": lambda kernels, _, peaks: _rate_reason("bandwidth", kernels, peaks),
    "arithmetic": lambda kernels, _, peaks: _rate_reason("arithmetic", kernels, peaks),
    "transfer": _transfer_reason,
}
