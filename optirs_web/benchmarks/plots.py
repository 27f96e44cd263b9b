"""Plots of a report with matplotlib: bars of our time as a share of each rival's, and a roofline."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..files import write_picture
from .denominators import COPY, PRODUCT
from .report import rivals_of
from .results import Result
from .suite import Report

__all__ = ["draw"]

_COLORS = ("#1f5fa8", "#d1495b", "#2a7f62", "#b8860b")


def draw(report: Report, path: str | os.PathLike[str]) -> None:
    """Draw a report into a PNG file: for each device bars, and the roofline next to them.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    devices = list(report.devices)
    longest = max(len([result for result in report.results if result.device == name]) for name in devices)
    height = 1.5 + 0.28 * max(12, longest)
    figure = Figure(figsize=(14, height * len(devices)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(devices), 2, squeeze=False, width_ratios=(3, 2))
    for (bars, roofline), name in zip(axes, devices, strict=True):
        results = [result for result in report.results if result.device == name]
        title = f"{name}: {report.devices[name]['description']}, {report.date}"
        _draw_bars(bars, title, [result for result in results if result.rivals], rivals_of(results))
        _draw_roofline(roofline, results, report.devices[name].get("rates", {}))
    write_picture(path, figure)


def _draw_bars(axes: Any, title: str, results: Sequence[Result], rivals: Sequence[str]) -> None:
    """Draw a bar for each rival of a case, on a logarithmic scale around 1, with the spread of the ratio."""
    height = 0.8 / max(1, len(rivals))
    for number, rival in enumerate(rivals):
        rows = [(index, result.ratio(rival)) for index, result in enumerate(results) if rival in result.rivals]
        positions = [index + (number - (len(rivals) - 1) / 2) * height for index, _ in rows]
        medians = [ratio.median for _, ratio in rows]
        errors = [ratio.median * ratio.spread / 2 for _, ratio in rows]
        color = _COLORS[number % len(_COLORS)]
        lefts = [min(1.0, median) for median in medians]
        axes.barh(positions, [abs(median - 1) for median in medians], height, lefts, color=color, label=rival)
        axes.errorbar(medians, positions, xerr=errors, fmt="none", ecolor="#333333", elinewidth=0.8)
    axes.set_xscale("log")
    axes.axvline(1, color="#333333", linewidth=0.9)
    axes.set_yticks(range(len(results)), [result.case for result in results], fontsize=8)
    axes.set_ylim(len(results) - 0.4, -0.6)
    axes.set_xlabel("our time as a share of the rival's (below 1 ours is faster)", fontsize=9)
    axes.set_title(title, loc="left", fontsize=10)
    _label_ratios(axes)
    if rivals:
        axes.legend(frameon=False, fontsize=8)
    _tidy(axes)


def _label_ratios(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_roofline(axes: Any, results: Sequence[Result], rates: dict[str, Any]) -> None:
    """Draw the rates of cases over their operations per byte, below the rates of the device's copy and product."""
    points = [(result, _intensity(result)) for result in results if result.operations]
    copies, product = (rates.get(name, {}).get("rate") for name in (COPY, PRODUCT))
    axes.set_title("Roofline: products, attention, convolutions", loc="left", fontsize=10)
    if not points or not product:
        axes.text(0.5, 0.5, "no case with operations was run", ha="center", transform=axes.transAxes, fontsize=9)
        axes.set_axis_off()
        return
    lowest, highest = min(intensity for _, intensity in points) / 8, max(intensity for _, intensity in points) * 4
    if copies:
        ridge = product / copies
        lowest = min(lowest, ridge / 8)
        axes.plot([lowest, ridge, max(highest, 2 * ridge)], [lowest * copies, product, product], color="#555555")
    else:
        axes.axhline(product, color="#555555")
    groups = sorted({result.case.partition("/")[0] for result, _ in points})
    for group, color in zip(groups, _COLORS, strict=False):
        of_group = [(x, result.rate()) for result, x in points if result.case.startswith(f"{group}/")]
        axes.scatter(*zip(*of_group, strict=True), color=color, label=group, s=22, zorder=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("floating-point operations per byte of inputs and results", fontsize=9)
    axes.set_ylabel("operations per second", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    _tidy(axes)


def _intensity(result: Result) -> float:
    return result.operations / (result.touched or 1)


def _tidy(axes: Any) -> None:
    axes.tick_params(labelsize=8)
    axes.grid(True, color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
