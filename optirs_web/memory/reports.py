"""A memory timeline as JSON, as a table and as a picture. matplotlib is imported when a picture is drawn."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .timeline import MemoryEvent, MemoryTimeline

__all__ = ["BEFORE", "as_json", "plotted", "summarized"]

BEFORE = "(there before)"
"""The label of memory that was in use when the timeline began."""

_COLORS = ("#b0b7bf", "#1f5fa8", "#d1495b", "#2a7f62", "#e3a02c", "#7a5aa6", "#4fb0c6", "#8c6d46")
_POOL, _INK = "#e3e7eb", "#222222"
_OTHERS = "(others)"
_MARKS = {"replay": ":", "trim": "--", "exhausted": "-"}
_AXES: dict[str, tuple[str, Callable[[int, MemoryEvent], float]]] = {
    "events": ("events", lambda number, _: number),
    "time": ("milliseconds", lambda _, event: 1000 * event.time),
}
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def as_json(timeline: MemoryTimeline, path: str | os.PathLike[str] | None) -> str:
    """`MemoryTimeline.to_json`."""
    text = json.dumps(
        {
            "format": "optirs_web.memory_timeline",
            "version": 1,
            "device": timeline.device.name,
            "limit": timeline.device.memory_stats().limit,
            "first_live": timeline.first_live,
            "first_pooled": timeline.first_pooled,
            "peak": timeline.peak,
            "peak_held": timeline.peak_held,
            "events": [asdict(event) for event in timeline.events],
        }
    )
    if path is not None:
        Path(path).write_text(text + "\n", encoding="utf-8")
    return text


def summarized(timeline: MemoryTimeline) -> str:
    """`MemoryTimeline.summary`."""
    events = timeline.events
    lasted = 1000 * events[-1].time if events else 0.0
    times, nbytes = Counter(event.kind for event in events), Counter[str]()
    for event in events:
        nbytes[event.kind] += event.nbytes
    kinds = [(kind, f"{number:,}", _size(nbytes[kind])) for kind, number in times.items()]
    live = [(kernel, "", _size(size)) for kernel, size in timeline.live_at_peak().most_common()]
    return "\n".join(
        [
            f"memory of '{timeline.device.name}': {len(events):,} events in {lasted:.1f} ms",
            f"in use at most {_size(timeline.peak)}, with the pool {_size(timeline.peak_held)}",
            *_table(("event", "times", "bytes"), kinds),
            *_table(("in use at the peak, by kernel", "", "bytes"), live),
        ]
    )


def _table(head: tuple[str, str, str], rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Format rows of three columns, the first aligned left, the others right; no lines where there are no rows."""
    return ["", *(f"{first:32}{second:>8}{third:>14}" for first, second, third in (head, *rows))] if rows else []


def _power(nbytes: int) -> int:
    return min(max(nbytes.bit_length() - 1, 0) // 10, len(_UNITS) - 1)


def _size(nbytes: int) -> str:
    power = _power(nbytes)
    return f"{nbytes / 1024**power:,.{min(power, 1)}f} {_UNITS[power]}"


def plotted(timeline: MemoryTimeline, path: str | os.PathLike[str] | None, against: str) -> Any:
    """`MemoryTimeline.plot`."""
    if against not in _AXES:
        raise ValueError(f"a timeline must be drawn against {' or '.join(map(repr, _AXES))}, not {against!r}")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ImportError(
            f"a picture needs {error.name}: pip install matplotlib, or in a page await "
            "pyodide.loadPackage('matplotlib'). summary() and to_json() do not"
        ) from None

    label, place_of = _AXES[against]
    positions = [0.0, *(place_of(index, event) for index, event in enumerate(timeline.events, start=1))]
    power = _power(timeline.peak_held)
    figure = Figure(figsize=(10, 4.5), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    _draw_bytes(axes, timeline, positions, 1024**power)
    _draw_marks(axes, timeline, positions, 1024**power)
    axes.set_title(f"Memory of {timeline.device.name}: {timeline.device.info.description}", fontsize=11)
    axes.set_xlabel(label)
    axes.set_ylabel(_UNITS[power])
    axes.margins(x=0.0)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()  # stacked from below, so named from above
    axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    if path is not None:
        figure.savefig(path)
    return figure


def _draw_bytes(axes: Any, timeline: MemoryTimeline, positions: Sequence[float], unit: int) -> None:
    """Draw the bytes in use as layers by kernel, those with the highest peaks by name, and the pool on top."""
    highest = Counter[str]()
    for live in timeline.live_by_kernel():
        highest |= live
    del highest[BEFORE]
    named = [BEFORE, *(kernel for kernel, _ in highest.most_common(len(_COLORS) - 2))]
    layers: dict[str, list[float]] = {kernel: [] for kernel in (*named, _OTHERS)}
    for live in timeline.live_by_kernel():
        for kernel in named:
            layers[kernel].append(live[kernel] / unit)
        layers[_OTHERS].append(sum(size for kernel, size in live.items() if kernel not in named) / unit)
    colors = dict(zip(layers, _COLORS, strict=False)) | {"(pool)": _POOL}
    layers["(pool)"] = [size / unit for size in (timeline.first_pooled, *(event.pooled for event in timeline.events))]
    shown = {kernel: sizes for kernel, sizes in layers.items() if any(sizes)}
    if shown:
        axes.stackplot(
            positions, *shown.values(), labels=shown.keys(), colors=[colors[kernel] for kernel in shown], step="post"
        )
    live_bytes = [size / unit for size in (timeline.first_live, *(event.live for event in timeline.events))]
    axes.step(positions, live_bytes, where="post", color=_INK, linewidth=0.8)
    peak = 0 if timeline.peak_index is None else timeline.peak_index + 1
    axes.plot(positions[peak], live_bytes[peak], "o", color=_INK, markersize=4, label=f"peak {_size(timeline.peak)}")


def _draw_marks(axes: Any, timeline: MemoryTimeline, positions: Sequence[float], unit: int) -> None:
    """Draw vertical lines at replays, trims and exhausted memory, and a horizontal one at the limit if it is near."""
    for kind, style in _MARKS.items():
        marked = [
            position for position, event in zip(positions[1:], timeline.events, strict=True) if event.kind == kind
        ]
        for number, position in enumerate(marked):
            axes.axvline(position, linestyle=style, color=_INK, linewidth=0.7, label="_again" if number else kind)
    limit = timeline.device.memory_stats().limit
    if limit is not None and limit <= 2 * timeline.peak_held:
        axes.axhline(limit / unit, color=_COLORS[2], linewidth=1, label=f"limit {_size(limit)}")
