"""The picture of a profile. matplotlib is imported when one is drawn; no window is ever opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..files import write_picture
from .analysis import Summary
from .units import seconds_text, share_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

_MOST_BARS = 20

_COLORS = {"launch": "#8a8a8a", "bandwidth": "#1f5fa8", "arithmetic": "#d1495b"}
_OF_BANDWIDTH, _OF_ARITHMETIC = _COLORS["bandwidth"], _COLORS["arithmetic"]


def draw(title: str, summaries: Sequence[Summary], path: str | os.PathLike[str] | None) -> Figure:
    """Draw horizontal bars: the time of each kernel, and next to it its shares of the measured peaks.

    Args:
        title: above both.
        summaries: the longest first; kernels beyond twenty are left out, and the label gives their number.
        path: where to write a PNG, which is replaced as a whole; None to write none.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = list(summaries[:_MOST_BARS])
    figure = Figure(figsize=(11, 1.6 + 0.34 * max(3, len(shown))), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    times, peaks = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    _draw_times(times, shown)
    _draw_shares(peaks, shown)
    left_out = len(summaries) - len(shown)
    if left_out:
        left_share = sum(summary.share for summary in summaries[_MOST_BARS:])
        times.set_xlabel(f"{times.get_xlabel()}; {left_out} more kernels take {share_text(left_share)}")
    if path is not None:
        write_picture(path, figure)
    return figure


def _draw_times(axes: Any, shown: Sequence[Summary]) -> None:
    from matplotlib.patches import Patch

    several = len({summary.device for summary in shown}) > 1
    names = [f"{summary.name} ({summary.device})" if several else summary.name for summary in shown]
    positions = range(len(shown))
    axes.barh(
        positions, [100 * summary.share for summary in shown], color=[_COLORS[summary.bound] for summary in shown]
    )
    for position, summary in zip(positions, shown, strict=True):
        text = f" {seconds_text(summary.seconds)}, {summary.launches:,}×"
        axes.text(100 * summary.share, position, text, va="center", fontsize=8)
    axes.set_yticks(positions, names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max((100 * summary.share for summary in shown), default=100) + 1)
    axes.set_xlabel("% of the time of all kernels")
    axes.set_title("Time", loc="left", fontsize=10)
    handles = [Patch(color=color, label=f"bound by {bound}") for bound, color in _COLORS.items()]
    axes.legend(handles=handles, frameon=False, loc="lower right", fontsize=8)
    _tidy(axes)


def _draw_shares(axes: Any, shown: Sequence[Summary]) -> None:
    height = 0.38
    for offset, color, label, values in (
        (-height / 2, _OF_BANDWIDTH, "bandwidth", [summary.of_bandwidth for summary in shown]),
        (height / 2, _OF_ARITHMETIC, "arithmetic", [summary.of_arithmetic or 0.0 for summary in shown]),
    ):
        positions = [index + offset for index in range(len(shown))]
        axes.barh(positions, [100 * value for value in values], height=height, color=color, label=label)
        for position, value in zip(positions, values, strict=True):
            if value >= 0.001:
                axes.text(100 * value, position, f" {100 * value:.1f}", va="center", fontsize=7)
    axes.axvline(100, color="#555555", linewidth=0.8)
    highest = max((max(summary.of_bandwidth, summary.of_arithmetic or 0.0) for summary in shown), default=0.0)
    axes.set_xlim(0, 112 * max(1.0, highest))
    axes.set_xlabel("% of the measured peak")
    axes.set_title("Share of peak", loc="left", fontsize=10)
    axes.tick_params(axis="y", length=0)
    axes.legend(frameon=False, loc="lower right", fontsize=8)
    _tidy(axes)


def _tidy(axes: Any) -> None:
    axes.tick_params(axis="x", labelsize=8)
    axes.xaxis.label.set_size(9)
    axes.margins(y=0.02)
    axes.grid(True, axis="x", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
