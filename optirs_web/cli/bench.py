"""``optirs-web bench``: runs the benchmark suite, with tables, JSON, plots and a comparison with an earlier report."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console

import optirs_web as ow

from ..benchmarks import cases
from ..benchmarks.benchmark import ROUNDS
from ..benchmarks.cases import CASES, GROUPS
from ..benchmarks.libraries import RIVALS, load
from ..benchmarks.report import cells, grown, headings, markdown, rates_text, rivals_of
from ..benchmarks.results import Result
from ..benchmarks.suite import Report, run
from .outputs import need_writable
from .tables import print_table, table_of

__all__ = ["bench"]

_TOLERANCE = 1e-3
"""Largest difference of a rival's result from ours, as a share of the largest value."""

_FILE = click.Path(dir_okay=False, path_type=Path)
_FILES = ("--json", "--plot", "--compare")
"""Options whose files are not named in a report, which may be published."""


def _rivals(ctx: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    unknown = set(names) - RIVALS.keys()
    if unknown:
        raise click.BadParameter(f"no library {', '.join(sorted(unknown))}; there are {', '.join(RIVALS)}")
    return names


@click.command()
@click.argument("groups", nargs=-1, metavar=f"[{'|'.join(GROUPS)}]...")
@click.option("--device", "devices", multiple=True, help="Device to measure; may be repeated.  [default: all]")
@click.option("--against", default="", callback=_rivals, metavar="NAMES", help=f"Rivals: {','.join(RIVALS)}.")
@click.option("--json", "file", type=_FILE, help="Write everything measured to FILE, after each case.")
@click.option("--compare", type=click.Path(exists=True, dir_okay=False), help="Show changes since a FILE of --json.")
@click.option("--check", is_flag=True, help="With --compare: exit with status 1 where a count grew.")
@click.option("--plot", type=_FILE, help="Draw bars and a roofline into FILE, a PNG.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown tables.")
@click.option("--rounds", type=click.IntRange(2), default=ROUNDS, show_default=True, help="Rounds of each case.")
@click.option("--case", "chosen", multiple=True, help="Only this case, as products/512; may be repeated.")
@click.pass_context
def bench(
    ctx: click.Context,
    groups: tuple[str, ...],
    devices: tuple[str, ...],
    against: list[str],
    file: Path | None,
    compare: str | None,
    check: bool,
    plot: Path | None,
    as_markdown: bool,
    rounds: int,
    chosen: tuple[str, ...],
) -> None:
    """Measure the library's speed and memory, alternating with other libraries.

    Prints a median, our share of each rival's time (below 1 ours is faster; with the spread where that is above 10%),
    the share of the device's copy bandwidth or of a product by the platform's library, and counts of a call:
    dispatches in submits, bytes up and down, allocations, the most memory in use.

    Exits with status 1 if a rival's result differs from ours.
    """
    names = _names(groups, chosen)
    if check and compare is None:
        raise click.UsageError("--check compares counts with those of --compare")
    need_writable(file, "--json")
    need_writable(plot, "--plot")
    if plot and not find_spec("matplotlib"):
        raise click.BadParameter(
            "matplotlib draws it, which is not installed: pip install 'optirs-web[train]'", param_hint="--plot"
        )
    earlier = _read(compare) if compare else None
    if find_spec("numba"):
        os.environ.setdefault("OPTIRS_CPU", "numba")  # loops are compiled before the first round
    load(against)
    opened = [ow.device(name) for name in devices or _available()]
    report = run(names, opened, against, rounds, _command(), lambda report: _save(report, file))
    if as_markdown:
        click.echo(markdown(report))
    else:
        _print(report)
    if file:
        report.write(file)
    if plot:
        from ..benchmarks.plots import draw

        draw(report, plot)
    grew = grown(report.results, earlier.results) if earlier else []
    if earlier:
        _print_changes(report, earlier, grew)
    if _print_differences(report.results) or (check and grew):
        ctx.exit(1)


def _names(groups: Sequence[str], chosen: Sequence[str]) -> list[str]:
    try:
        names = cases(*groups)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="GROUPS") from None
    unknown = set(chosen) - CASES.keys()
    if unknown:
        raise click.BadParameter(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    names = [name for name in names if not chosen or name in chosen]
    if not names:
        raise click.BadParameter(f"{', '.join(chosen)} is not of {', '.join(groups)}", param_hint="--case")
    return names


def _available() -> list[str]:
    """Return the names of all devices but OpenGL's, the processor first."""
    names = [device.label for device in ow.devices() if device.available and device.name != "gl"]
    return sorted(names, key=lambda name: name != "cpu")


def _read(path: str) -> Report:
    try:
        return Report.read(path)
    except (ValueError, TypeError, KeyError, json.JSONDecodeError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--compare") from None


def _command() -> str:
    """Return the command line without the options that name files."""
    arguments = iter(sys.argv[1:])
    arguments_kept = []
    for argument in arguments:
        if argument in _FILES:
            next(arguments, None)
        elif argument.partition("=")[0] not in _FILES:
            arguments_kept.append(argument)
    return shlex.join(["optirs-web", *arguments_kept])


def _save(report: Report, file: Path | None) -> None:
    """Write the report so far, and print the last case on a terminal."""
    if file:
        report.write(file)
    console, last = Console(stderr=True), report.results[-1]
    if console.is_terminal:
        console.print(f"{last.case} on {last.device}: {cells(last, [])[1]}")


def _print(report: Report) -> None:
    for name, facts in report.devices.items():
        results = [result for result in report.results if result.device == name]
        rivals = rivals_of(results)
        click.echo(f"{name}: {facts['description']}\n{rates_text(report, name)}")
        table = table_of(*headings(rivals))
        for result in results:
            table.add_row(*cells(result, rivals))
        print_table(table)
        click.echo()
    for name, reason in report.notes.items():
        click.echo(f"{name}: {reason}")
    left_out = Counter(f"{name}: {reason}" for result in report.results for name, reason in result.notes.items())
    for reason, count in left_out.items():
        click.echo(f"{reason} ({count} cases)")


def _print_changes(report: Report, earlier: Report, grew: Sequence[str]) -> None:
    before = {(result.case, result.device): result.figure.median for result in earlier.results}
    table = table_of("case", "device", "share of the earlier time")
    for result in report.results:
        median = before.get((result.case, result.device))
        if median:
            table.add_row(result.case, result.device, f"{result.figure.median / median:.2f}")
    print_table(table)
    click.echo("\n".join(grew) if grew else "no count grew")


def _print_differences(results: Sequence[Result]) -> bool:
    """Print the rivals' results that differ from ours; return whether there are any."""
    sentences = [
        f"{result.case} on {result.device}: the result of {name} differs by {difference:.1e} of the largest value"
        for result in results
        for name, difference in result.differences.items()
        if not difference <= _TOLERANCE
    ]
    for sentence in sentences:
        click.echo(sentence, err=True)
    return bool(sentences)
