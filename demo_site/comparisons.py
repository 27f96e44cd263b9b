"""The content of the page Compare: our time as a share of each rival's, from the suite's published reports."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import NamedTuple

from ..benchmarks.cases import CASES
from ..benchmarks.report import amount_text, ratio_text, rivals_of, title_of
from ..benchmarks.results import Result
from ..benchmarks.suite import REPORTS, Report

__all__ = ["Comparison", "Group", "Row", "Share", "comparisons"]

_WIDEST = 3.0
"""The largest power of two to which a bar extends."""


class Share(NamedTuple):
    """Our time as a share of a rival's.

    Attributes:
        text: the median, with its spread where that is not steady; "" where the rival has no times.
        reason: why it has none.
        power: the logarithm to the base 2 of the median, limited to -3 and 3; below 0 ours is faster.
    """

    text: str
    reason: str = ""
    power: float = 0.0


class Row(NamedTuple):
    """A case: its name within the group, our median time (or bytes), and the share of each rival's."""

    case: str
    ours: str
    shares: list[Share]


class Group(NamedTuple):
    """The cases of one group of the suite, such as "products"."""

    name: str
    rows: list[Row]


class Comparison(NamedTuple):
    """The results of one device in one report.

    Attributes:
        id: the anchor of links.
        title: the device, the groups of cases, and the device's description.
        facts: the date, the machine and the versions.
        command: the command line of the run.
        rivals: the libraries that have times.
        faster: the number of ratios below 1.
        ratios: the number of ratios.
        groups: the cases.
    """

    id: str
    title: str
    facts: str
    command: str
    rivals: list[str]
    faster: int
    ratios: int
    groups: list[Group]


@cache
def comparisons() -> list[Comparison]:
    """Return the published reports, device by device."""
    return [comparison for path in REPORTS for comparison in _of_report(path.stem, Report.read(path))]


def _of_report(name: str, report: Report) -> Iterator[Comparison]:
    machine = report.machine
    versions = ", ".join(f"{library} {version}" for library, version in machine["versions"].items())
    for device, facts in report.devices.items():
        results = [result for result in report.results if result.device == device]
        rivals = rivals_of(results)
        medians = [result.ratio(rival).median for result in results for rival in result.rivals]
        groups = [
            Group(group, [_row(result, rivals) for result in members])
            for group, members in groupby(results, lambda result: result.case.partition("/")[0])
        ]
        yield Comparison(
            f"{name}-{device}",
            f"{device}, {title_of(results, facts['description'])}",
            f"{report.date}; {machine['processor']}, {machine['cores']} cores; {versions}",
            report.command,
            rivals,
            sum(median < 1 for median in medians),
            len(medians),
            groups,
        )


def _row(result: Result, rivals: list[str]) -> Row:
    unit = "B" if result.case in CASES and CASES[result.case].kind == "memory" else "s"
    shares = [_share(result, rival) for rival in rivals]
    return Row(result.case.partition("/")[2], amount_text(result.figure.median, unit), shares)


def _share(result: Result, rival: str) -> Share:
    if rival not in result.rivals:
        return Share("", result.notes.get(rival, "not measured"))
    ratio = result.ratio(rival)
    power = math.log2(ratio.median) if ratio.median > 0 else -_WIDEST
    return Share(ratio_text(ratio), power=max(-_WIDEST, min(_WIDEST, power)))
