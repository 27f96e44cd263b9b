"""The profile as a trace for Perfetto (https://ui.perfetto.dev) and chrome://tracing.

The form is the Trace Event Format of Chromium (Duan and others, "Trace Event Format", 2016): complete events ("X") on
threads that metadata events ("M") name, and a flow ("s", "f") from each submit to its kernels. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .records import HostSpan, KernelRun, Step

__all__ = ["trace_of"]

_HOST, _DEVICES = 1, 2  # processes
_STEPS, _CALLS, _FIRST_DEVICE = 11, 12, 21  # threads; Perfetto tells them apart by number alone, whatever their process

Event = dict[str, Any]


def trace_of(
    kernels: Sequence[KernelRun], host: Sequence[HostSpan], steps: Sequence[Step], clocks: Mapping[str, str]
) -> dict[str, Any]:
    """Return the content of the trace file as JSON's objects and lists.

    Args:
        kernels: of all devices.
        host: without gaps.
        steps: as they were marked.
        clocks: of each device.
    """
    threads = {device: number for number, device in enumerate(clocks, _FIRST_DEVICE)}
    names = [(_HOST, _CALLS, "process_name", "host"), (_HOST, _CALLS, "thread_name", "calls")]
    if steps:
        names.append((_HOST, _STEPS, "thread_name", "steps"))
    names.append((_DEVICES, _FIRST_DEVICE, "process_name", "devices"))
    names += [(_DEVICES, threads[device], "thread_name", f"{device} ({clock})") for device, clock in clocks.items()]
    events: list[Event] = [
        {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}
        for process, thread, kind, name in names
    ]
    events += [_event(_HOST, _STEPS, f"step {step.number}", "step", step.start, step.end, {}) for step in steps]
    for span in host:
        details = {**span.details, "device": span.device} if span.device else dict(span.details)
        events.append(_event(_HOST, _CALLS, span.kind, "host", span.start, span.end, details))
    for device, thread in threads.items():
        events += _device_events([run for run in kernels if run.device == device], host, device, thread)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _microseconds(nanoseconds: int) -> float:
    """Return microseconds, a quarter of a nanosecond more, since Perfetto truncates after the third digit."""
    return (nanoseconds + 0.25) / 1000


def _event(process: int, thread: int, name: str, kind: str, start: float, end: float, details: Event) -> Event:
    """Return a complete event; both ends are rounded to nanoseconds, so that nested spans stay nested in the file."""
    first, last = _nanoseconds(start), _nanoseconds(end)
    return {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "name": name,
        "cat": kind,
        "ts": _microseconds(first),
        "dur": _microseconds(last - first),
        "args": details,
    }


def _device_events(kernels: Sequence[KernelRun], host: Sequence[HostSpan], device: str, thread: int) -> Iterator[Event]:
    sent = {span.details["submit"]: span for span in host if "submit" in span.details and span.device == device}
    submits: dict[int, list[KernelRun]] = {}
    for run in kernels:
        submits.setdefault(run.submit, []).append(run)
    for number, runs in submits.items():
        start, end = min(run.start for run in runs), max(run.end for run in runs)
        details = {"kernels": len(runs), "bytes": sum(run.nbytes for run in runs)}
        yield _event(_DEVICES, thread, f"submit {number}", "submit", start, end, details)
        if number in sent:
            yield from _flow(1000 * number + thread, sent[number], thread, start)
        for run in runs:
            yield _event(_DEVICES, thread, run.name, "kernel", run.start, run.end, _details(run))


def _flow(number: int, sent: HostSpan, thread: int, start: float) -> Iterator[Event]:
    """Yield the two events of an arrow from the host's submit to the submit on the device."""
    common = {"cat": "submit", "name": "submit", "id": number}
    yield {"ph": "s", "pid": _HOST, "tid": _CALLS, "ts": _microseconds(_nanoseconds(sent.start)), **common}
    yield {"ph": "f", "bp": "e", "pid": _DEVICES, "tid": thread, "ts": _microseconds(_nanoseconds(start)), **common}


def _details(run: KernelRun) -> Event:
    return {
        "bytes read": run.bytes_read,
        "bytes written": run.bytes_written,
        "operations": run.operations if run.operations is not None else "not known",
        "workgroups": " x ".join(map(str, run.grid)),
        **run.parameters,
    }
