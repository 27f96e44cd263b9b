"""``optirs-web parity``: how far the devices are apart, kernel by kernel."""

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

__all__ = ["BOUND", "compared", "facts_of_line", "parity", "ulps"]

BOUND = 4.0
"""How many ulps of its largest operand a map function may be off."""

_SMALLEST_NORMAL = 2.0**-126
_OVERFLOW = 2.0**128

Array = npt.NDArray[Any]


def ulps(got: Array, wanted: Array, operands: Sequence[Array]) -> float:
    """The largest difference in ulps of the largest operand, which the result counts as too; infinite between kinds.

    Subnormal numbers count as zero. Infinity counts as 2^128, so that results beside the largest number are judged by
    their distance like any other; NaN is NaN. Booleans and integers are the same or infinitely far apart.
    """
    if wanted.dtype.kind != "f":
        return 0.0 if np.array_equal(got, wanted) else math.inf
    one, other = (np.clip(x.astype(np.float64), -_OVERFLOW, _OVERFLOW) for x in (got, wanted))
    one, other = (np.where(np.abs(x) < _SMALLEST_NORMAL, 0.0, x) for x in (one, other))
    size = np.abs(other)
    for operand in operands:
        size = np.fmax(size, np.where(np.isfinite(operand), np.abs(operand.astype(np.float64)), 0.0))
    _, exponent = np.frexp(np.clip(np.nan_to_num(size), _SMALLEST_NORMAL, _OVERFLOW / 2))
    apart = np.abs(one - other) / np.ldexp(1.0, exponent - 24)
    apart = np.where(np.isnan(one) | np.isnan(other), np.where(np.isnan(one) & np.isnan(other), 0.0, np.inf), apart)
    return float(apart.max())


class _Line(NamedTuple):
    """A row with what was found: by device the ulps, and the reason where there are none."""

    kind: str
    name: str
    reference: str
    found: dict[str, float]
    failed: dict[str, str]

    @property
    def is_above(self) -> bool:
        return self.kind == "map function" and any(not one <= BOUND for one in self.found.values())


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
    lines = (compared(row, opened) for row in _watched(_chosen(names)))
    labels = [one.name for one in opened]
    if as_json:
        found = list(lines)
        click.echo(json.dumps({"bound": BOUND, "rows": [facts_of_line(one) for one in found]}, indent=1))
    elif markdown:
        found = list(_print_markdown(lines, labels))
    else:
        found = _print_table(lines, labels)
    if any(one.is_above or one.failed for one in found):
        ctx.exit(1)


def _available() -> list[str]:
    """The names of all devices, the processor first."""
    names = [one.label for one in ow.devices() if one.available]
    return sorted(names, key=lambda name: name != "cpu")


def _chosen(names: Sequence[str]) -> list[Row]:
    every = list(rows())
    asked = {name.lower(): name for name in names}
    unknown = {name for lower, name in asked.items() if lower not in {one.name.lower() for one in every}}
    if unknown:
        known = [one.name for one in every]
        missing = ", ".join(f"'{name}'{similar(name, known)}" for name in sorted(unknown))
        raise click.BadParameter(
            f"there is no row {missing}; `optirs-web parity --list` lists them", param_hint="NAMES"
        )
    return [one for one in every if not asked or one.name.lower() in asked]


def compared(row: Row, devices: Sequence[ow.Device]) -> _Line:
    """Return a row of the table: how far each device is from the reference."""
    results: dict[str, Array] = {}
    failed: dict[str, str] = {}
    for device in devices:
        try:
            results[device.name] = row.compute(device)
        except ow.errors.UnsupportedError as error:
            failed[device.name] = str(error)
    reference, wanted = "float64", row.reference()
    if wanted is None:
        reference, wanted = next(iter(results.items()), ("", np.zeros(0)))
    operands = row.operands()
    found = {name: ulps(one, wanted, operands) for name, one in results.items()}
    return _Line(row.kind, row.name, reference, found, failed)


def facts_of_line(line: _Line) -> dict[str, Any]:
    """Return a row for JSON; a difference that is not finite is None."""
    found = {name: one if math.isfinite(one) else None for name, one in line.found.items()}
    facts = {"kind": line.kind, "name": line.name, "reference": line.reference, "ulps": found}
    return {**facts, "above": line.is_above, "failed": line.failed}


def _cells(line: _Line, labels: Sequence[str]) -> list[str]:
    def cell(label: str) -> str:
        if label in line.failed:
            return "failed"
        found = line.found[label]
        return "differs" if math.isinf(found) else f"{found:,.0f}" if found >= 1000 else f"{found:.3g}"

    mark = "above the bound" if line.is_above else ""
    return [line.kind, line.name, line.reference, *map(cell, labels), mark]


def _headings(labels: Sequence[str]) -> list[str]:
    return ["kind", "name", "compared with", *labels, ""]


def _print_markdown(lines: Iterable[_Line], labels: Sequence[str]) -> Iterable[_Line]:
    headings = _headings(labels)
    for cells in (headings, ["---"] * len(headings)):
        click.echo(f"| {' | '.join(cells)} |")
    for line in lines:
        click.echo(f"| {' | '.join(_cells(line, labels))} |")
        yield line


def _print_table(lines: Iterable[_Line], labels: Sequence[str]) -> list[_Line]:
    table = table_of(*_headings(labels))
    found = list(lines)
    for line in found:
        table.add_row(*_cells(line, labels))
    print_table(table)
    functions = [one.is_above for one in found if one.kind == "map function"]
    if functions:
        above = f"{sum(functions)} of them above {BOUND:g} ulps of the largest operand"
        click.echo(f"\n{len(functions)} map function{'s' * (len(functions) != 1)}, {above}")
    for line in found:
        for name, reason in line.failed.items():
            click.echo(f"{line.name} on {name}: {reason}")
    return found


def _watched(chosen: Sequence[Row]) -> Iterator[Row]:
    """The rows, with a bar on the terminal that says how many are done: all of them take minutes."""
    console = Console(stderr=True)
    yield from track(chosen, "comparing", console=console, transient=True, disable=not console.is_terminal)
