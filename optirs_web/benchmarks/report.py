"""The text of a report: numbers with units, a table for each device, and counts that have grown."""

from __future__ import annotations

from collections.abc import Sequence

from .cases import CASES
from .counting import NAMES
from .denominators import COPY, PRODUCT
from .results import Figure, Result
from .suite import Report
from .timing import STEADY

__all__ = [
    "HEADINGS",
    "amount_text",
    "cells",
    "grown",
    "headings",
    "markdown",
    "rates_text",
    "ratio_text",
    "rivals_of",
    "text_of",
    "title_of",
]

_COUNTED = (*NAMES, "peak_memory")
HEADINGS = ("case", "time", "share of the device")


def amount_text(value: float, unit: str) -> str:
    """Return a number with three digits and a prefix.

    Example:
        >>> amount_text(0.00123, "s"), amount_text(2.5e9, "B/s"), amount_text(0, "B")
        ('1.23 ms', '2.50 GB/s', '0.00 B')
    """
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0), ("m", 1e-3), ("µ", 1e-6)):
        if abs(value) >= factor or prefix == "µ" or (prefix == "" and value == 0):
            scaled = value / factor
            digits = 2 if abs(scaled) < 10 else 1 if abs(scaled) < 100 else 0
            return f"{scaled:.{digits}f} {prefix}{unit}"
    raise AssertionError


def ratio_text(ratio: Figure) -> str:
    """Return a ratio in two significant digits or more, with its spread where that is not steady.

    Example:
        >>> ratio_text(Figure(0.0031415, 0.14)), ratio_text(Figure(12.345, 0.01))
        ('0.0031 ±7%', '12.35')
    """
    median = f"{ratio.median:.2f}" if ratio.median >= 0.095 else f"{ratio.median:#.2g}"
    return median + (f" ±{ratio.spread / 2:.0%}" if ratio.spread > STEADY else "")


def headings(rivals: Sequence[str]) -> list[str]:
    """Return the headings of a table with these rivals."""
    return [*HEADINGS, *(f"share of {name}'s" for name in rivals), "dispatches", "up", "down", "allocations", "peak"]


def cells(result: Result, rivals: Sequence[str]) -> list[str]:
    """Return the row of a result."""
    is_memory = result.case in CASES and CASES[result.case].kind == "memory"
    share = result.share()
    row = [result.case, amount_text(result.figure.median, "B" if is_memory else "s")]
    row.append(f"{share.median:.0%}" if share else "")
    row += [ratio_text(result.ratio(name)) if name in result.rivals else "" for name in rivals]
    counts = result.counts
    row.append(f"{counts['dispatches']} in {counts['submits']}" if counts else "")
    row += [f"{counts[name]:,}" if name in counts else "" for name in ("bytes_up", "bytes_down", "allocations")]
    row.append(amount_text(counts["peak_memory"], "B") if "peak_memory" in counts else "")
    return row


def rates_text(report: Report, device: str) -> str:
    """Return the rates of a device's denominators, and what computes each."""
    units = {COPY: "B/s", PRODUCT: "FLOP/s"}
    rates = report.devices[device].get("rates", {})
    return "; ".join(
        f"{name} {amount_text(facts['rate'], units[name])} ({facts['by']})" for name, facts in rates.items()
    )


def rivals_of(results: Sequence[Result]) -> list[str]:
    """Return the names of the rivals that have times in any of these."""
    return sorted({name for result in results for name in result.rivals})


def title_of(results: Sequence[Result], description: str) -> str:
    """Return a table's title: the groups of its cases, or the kinds of a page's cases, and the device.

    Example:
        >>> cases = [Result(f"page/{name}", "webgpu", {}) for name in ("product-128", "product-256", "gpt")]
        >>> title_of(cases, "a GPU")
        'product, gpt: a GPU'
    """
    names = (result.case.partition("/") for result in results)
    kinds = (name.partition("-")[0] if group == "page" else group for group, _, name in names)
    return f"{', '.join(dict.fromkeys(kinds))}: {description}"


def markdown(report: Report) -> str:
    """Return a section of Markdown for each device."""
    lines: list[str] = []
    for device, facts in report.devices.items():
        results = [result for result in report.results if result.device == device]
        rivals = rivals_of(results)
        versions = ", ".join(f"{name} {version}" for name, version in report.machine["versions"].items())
        settings = " ".join(f"{name}={value}" for name, value in report.machine["settings"].items())
        lines += [
            f"## {device}, {title_of(results, facts['description'])}",
            "",
            f"{report.date}; {report.machine['processor']}, {report.machine['cores']} cores; {versions}"
            + (f"; {settings}" if settings else ""),
            "",
            f"    {report.command}",
            "",
        ]
        rates = rates_text(report, device)
        lines += [f"Denominators, in the same run: {rates}.", ""] if rates else []
        head = headings(rivals)
        lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        lines += [f"| {' | '.join(cells(result, rivals))} |" for result in results]
        lines.append("")
    return "\n".join(lines)


def text_of(result: Result) -> str:
    """Return a result in a few lines: the time, the ratios, the notes and the counts."""
    lines = [f"{result.case} on {result.device}: {cells(result, [])[1]}, spread {result.figure.spread:.0%}"]
    lines += [f"{ratio_text(result.ratio(name))} of the time of {name}" for name in result.rivals]
    lines += [f"{name}: {reason}" for name, reason in result.notes.items()]
    if result.counts:
        lines.append(", ".join(f"{name} {count:,}" for name, count in result.counts.items()))
    return "\n".join(lines)


def grown(results: Sequence[Result], earlier: Sequence[Result]) -> list[str]:
    """Return a sentence for each count that is larger than in an earlier report."""
    before = {(result.case, result.device): result.counts for result in earlier}
    return [
        f"{result.case} on {result.device}: {result.counts[name]:,} {name}, {counts[name]:,} before"
        for result in results
        if (counts := before.get((result.case, result.device)))
        for name in _COUNTED
        if name in result.counts and name in counts and result.counts[name] > counts[name]
    ]
