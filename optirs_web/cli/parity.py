"""``optirs-web parity``: measures how far the results of devices differ, kernel by kernel."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track

import optirs_web as ow

from .misspelt import similar
from .parity_rows import Row, rows
from .tables import print_table, table_of

__all__ = ["BOUND", "compared", "facts_of_outcome", "parity", "ulps"]

BOUND = 4.0
"""The largest error of a map function that is accepted, in ulps of its largest operand."""

_SMALLEST_NORMAL = 2.0**-126
_OVERFLOW = 2.0**128

Array = npt.NDArray[Any]


def ulps(got: Array, expected: Array, operands: Sequence[Array]) -> float:
    """Return the largest difference in ulps of the largest operand, the expected result included.

    Subnormal numbers count as zero. Infinity counts as 2^128, so that results near the largest number are judged by
    their distance like any other. NaN equals NaN and is infinitely far from numbers; booleans and integers are equal
    or infinitely far apart.
    """
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(got, expected) else math.inf
    ours, other = (np.clip(x.astype(np.float64), -_OVERFLOW, _OVERFLOW) for x in (got, expected))
    ours, other = (np.where(np.abs(x) < _SMALLEST_NORMAL, 0.0, x) for x in (ours, other))
    size = np.abs(other)
    for operand in operands:
        size = np.fmax(size, np.where(np.isfinite(operand), np.abs(operand.astype(np.float64)), 0.0))
    _, exponent = np.frexp(np.clip(np.nan_to_num(size), _SMALLEST_NORMAL, _OVERFLOW / 2))
    apart = np.abs(ours - other) / np.ldexp(1.0, exponent - 24)
    apart = np.where(np.isnan(ours) | np.isnan(other), np.where(np.isnan(ours) & np.isnan(other), 0.0, np.inf), apart)
    return float(apart.max())


class _Outcome(NamedTuple):
    """The result of a row: the ulps by device, and the reason where a device cannot compute it."""

    kind: str
    name: str
    reference: str
    ulps: dict[str, float]
    failed: dict[str, str]

    @property
    def is_above(self) -> bool:
        return self.kind == "map function" and any(not difference <= BOUND for difference in self.ulps.values())


@click.command()
@click.argument("names", nargs=-1)
@click.option("--device", "devices", multiple=True, help="Device to compare.  [default: all available]")
@click.option("--list", "lists", is_flag=True, help="Print the names of the rows.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@click.pass_context
def parity(
    ctx: click.Context, names: tuple[str, ...], devices: tuple[str, ...], lists: bool, as_json: bool, markdown: bool
) -> None:
    """Print how far devices differ, in ulps of the largest operand.

    Map functions and operations are compared with float64; optimizers, and rows without a float64 reference, with
    the first device. NAMES are rows of the table; the default, all, takes minutes, since each is compiled on each
    device.

    Exits with status 1 if a map function is more than 4 ulps off or a device cannot compute a row.
    """
    if lists:
        for kind, group in groupby(rows(), lambda row: row.kind):
            click.echo(f"{kind}s:")
            for row in group:
                click.echo(f"  {row.name}")
        return
    opened = [ow.device(name) for name in devices or _available()]
    results = (compared(row, opened) for row in _watched(_chosen(names)))
    labels = [device.name for device in opened]
    if as_json:
        outcomes = list(results)
        click.echo(json.dumps({"bound": BOUND, "rows": [facts_of_outcome(outcome) for outcome in outcomes]}, indent=1))
    elif markdown:
        outcomes = list(_print_markdown(results, labels))
    else:
        outcomes = _print_table(results, labels)
    if any(outcome.is_above or outcome.failed for outcome in outcomes):
        ctx.exit(1)


def _available() -> list[str]:
    """Return the names of all available devices, the processor first."""
    names = [device.label for device in ow.devices() if device.available]
    return sorted(names, key=lambda name: name != "cpu")


def _chosen(names: Sequence[str]) -> list[Row]:
    every = list(rows())
    requested = {name.lower(): name for name in names}
    unknown = {name for lower, name in requested.items() if lower not in {row.name.lower() for row in every}}
    if unknown:
        known_names = [row.name for row in every]
        missing = ", ".join(f"'{name}'{similar(name, known_names)}" for name in sorted(unknown))
        raise click.BadParameter(
            f"there is no row {missing}; `optirs-web parity --list` lists them", param_hint="NAMES"
        )
    return [row for row in every if not requested or row.name.lower() in requested]


def compared(row: Row, devices: Sequence[ow.Device]) -> _Outcome:
    """Return a row of the table: how far each device is from the reference."""
    results: dict[str, Array] = {}
    failed: dict[str, str] = {}
    for device in devices:
        try:
            results[device.name] = row.compute(device)
        except ow.errors.UnsupportedError as error:
            failed[device.name] = str(error)
    reference, expected = "float64", row.reference()
    if expected is None:
        reference, expected = next(iter(results.items()), ("", np.zeros(0)))
    operands = row.operands()
    differences = {name: ulps(result, expected, operands) for name, result in results.items()}
    return _Outcome(row.kind, row.name, reference, differences, failed)


def facts_of_outcome(outcome: _Outcome) -> dict[str, Any]:
    """Return a row for JSON; a difference that is not finite is None."""
    differences = {name: difference if math.isfinite(difference) else None for name, difference in outcome.ulps.items()}
    facts = {"kind": outcome.kind, "name": outcome.name, "reference": outcome.reference, "ulps": differences}
    return {**facts, "above": outcome.is_above, "failed": outcome.failed}


def _cells(outcome: _Outcome, labels: Sequence[str]) -> list[str]:
    def cell(label: str) -> str:
        if label in outcome.failed:
            return "failed"
        difference = outcome.ulps[label]
        return (
            "differs" if math.isinf(difference) else f"{difference:,.0f}" if difference >= 1000 else f"{difference:.3g}"
        )

    mark = "above the bound" if outcome.is_above else ""
    return [outcome.kind, outcome.name, outcome.reference, *map(cell, labels), mark]


def _headings(labels: Sequence[str]) -> list[str]:
    return ["kind", "name", "compared with", *labels, ""]


def _print_markdown(results: Iterable[_Outcome], labels: Sequence[str]) -> Iterable[_Outcome]:
    headings = _headings(labels)
    for cells in (headings, ["---"] * len(headings)):
        click.echo(f"| {' | '.join(cells)} |")
    for outcome in results:
        click.echo(f"| {' | '.join(_cells(outcome, labels))} |")
        yield outcome


def _print_table(results: Iterable[_Outcome], labels: Sequence[str]) -> list[_Outcome]:
    table = table_of(*_headings(labels))
    outcomes = list(results)
    for outcome in outcomes:
        table.add_row(*_cells(outcome, labels))
    print_table(table)
    functions = [outcome.is_above for outcome in outcomes if outcome.kind == "map function"]
    if functions:
        above = f"{sum(functions)} of them above {BOUND:g} ulps of the largest operand"
        click.echo(f"\n{len(functions)} map function{'s' * (len(functions) != 1)}, {above}")
    for outcome in outcomes:
        for name, reason in outcome.failed.items():
            click.echo(f"{outcome.name} on {name}: {reason}")
    return outcomes


def _watched(chosen: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows, with a progress bar on a terminal, since all of them take minutes."""
    console = Console(stderr=True)
    yield from track(chosen, "comparing", console=console, transient=True, disable=not console.is_terminal)
