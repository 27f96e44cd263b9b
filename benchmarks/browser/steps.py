"""Products and training steps in the browser: this library compared with jax-js, TensorFlow.js and borch.

All run alternately in one page of Chromium. Prints milliseconds per step, and ours as a share of theirs: below 1 ours
is faster.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from chromium import (
    HERE,
    SWIFTSHADER,
    WHEELS,
    adapter_name,
    add_options,
    blank_page,
    call,
    chromium,
    finish,
    processor_milliseconds,
)
from playwright.sync_api import CDPSession, Page
from rich.console import Console
from rich.table import Table

from optirs_web.benchmarks.machine import description
from optirs_web.benchmarks.results import OURS, Result
from optirs_web.benchmarks.suite import Report
from optirs_web.benchmarks.timing import MOST_ROUNDS, STEADY, ratios, rotated, spread

BEFORE = "before"
RIVALS = ["jax-js", "TF.js", "borch"]
BORCH = WHEELS.parent / "borch"
GPT = HERE.parents[1] / "examples" / "gpt.py"


class Case(NamedTuple):
    """A case of the benchmark.

    Attributes:
        kind: the name of its data in page/steps/problems.js, and of its step in each library's file.
        options: of that data.
        goals: the largest share of each rival's time that ours may take.
        rounds: at most, before any are added, where a round takes long.
        tolerance: the largest difference of a product, or of the losses of the first steps, from ours, as a share of
            the largest value.
        small: the options for `--small`, where a step takes long.
        runs_on: the adapters on which it runs when no case is named: "software", "hardware", or "" for both.
    """

    kind: str
    options: dict[str, Any]
    goals: dict[str, float]
    rounds: int | None = None
    tolerance: float = 1e-4
    small: dict[str, Any] | None = None
    runs_on: str = ""

    def miniature(self) -> Case:
        """Return the case for `--small`; goals are those of the full size."""
        return self._replace(options=self.small, goals={}) if self.small else self


def _resnet(batch: int, adapters: str) -> Case:
    """Return the case of ResNet-18 with a batch of that size, on adapters as in `Case.runs_on`."""
    return Case(
        "resnet",
        {"batch": batch},
        dict.fromkeys(RIVALS, 0.7),
        rounds=3,
        tolerance=1e-2,
        small={"batch": 4, "side": 8, "blocks": [[8, 8, 1], [8, 16, 2]]},
        runs_on=adapters,
    )


CASES = {
    "product-128": Case("product", {"size": 128}, {"jax-js": 0.6, "TF.js": 0.15}),
    "product-256": Case("product", {"size": 256}, {"jax-js": 0.6, "TF.js": 0.15}),
    "product-512": Case("product", {"size": 512}, {"jax-js": 0.5, "TF.js": 0.15}),
    "product-1024": Case("product", {"size": 1024}, {"jax-js": 0.5, "TF.js": 0.15}, rounds=3),
    "mlp-64-128-10": Case("mlp", {"sizes": [64, 128, 10], "batch": 64}, dict.fromkeys(RIVALS, 0.6)),
    "mlp-784-512-256-10": Case("mlp", {"sizes": [784, 512, 256, 10], "batch": 128}, dict.fromkeys(RIVALS, 0.4)),
    "gpt": Case(
        "gpt",
        {"batch": 16, "length": 64, "width": 64, "layers": 2, "heads": 4, "characters": 73},
        dict.fromkeys(RIVALS, 0.7),
        small={"batch": 2, "length": 8, "width": 16, "layers": 2, "heads": 4, "characters": 13},
    ),
    "resnet18-16": _resnet(16, "software"),
    "resnet18-32": _resnet(32, "hardware"),
    "resnet18-64": _resnet(64, "hardware"),
}
"""float32. A product is of two square matrices; a step of the others is forward, cross entropy, backward and Adam."""

TIMED = 100.0
"""Milliseconds for which the fastest side runs in a round; all sides run as many steps."""

MOST_STEPS = 100
"""Largest number of steps that a side runs in a round."""

LONG = 5000.0
"""Milliseconds of any side's step above which sides are not warmed up, and no rounds are added."""


class Race:
    """The sides of a case in one page."""

    def __init__(self, page: Page, processes: CDPSession, case: Case, names: list[str]) -> None:
        self.page, self.processes = page, processes
        errors: dict[str, str] = call(page, "steps.js", "prepare", case.kind, case.options, names)
        self.warm: dict[str, dict[str, Any]] = call(page, "steps.js", "warmUp", case.kind)
        self.without = errors | {name: warm["error"] for name, warm in self.warm.items() if warm["error"]}
        """The error of each side that has no figures."""
        self.too_slow = {
            name: warm for name, warm in self.warm.items() if warm["slow"] and name != OURS and name not in self.without
        }
        self.names = [name for name in names if name not in self.without and name not in self.too_slow]
        """The sides that are timed."""
        last = [self.warm[name]["milliseconds"][-1] for name in self.names]
        fastest, self.long = min(last), max(last) > LONG
        self.steps = max(1, min(MOST_STEPS, round(TIMED / fastest)))
        self.milliseconds: dict[str, list[float]] = {name: [] for name in names}
        self.cpu: dict[str, list[float]] = {name: [] for name in names}

    def _time(self, name: str) -> float:
        """Run the steps of a side, and return the milliseconds of each."""
        milliseconds: float = call(self.page, "steps.js", "turn", name, self.steps)
        return milliseconds

    def run(self, rounds: int) -> None:
        """Time every side once in each round, and add rounds until the ratios are steady."""
        for name in [] if self.long else self.names:
            self._time(name)  # warms up
        for number in range(rounds if self.long else rounds * MOST_ROUNDS):
            if number >= rounds and all(spread(self.ratios(name)) <= STEADY for name in self.names):
                break
            for name in rotated(self.names, number):
                before = processor_milliseconds(self.processes)
                self.milliseconds[name].append(self._time(name))
                self.cpu[name].append((processor_milliseconds(self.processes) - before) / self.steps)

    def ratios(self, name: str) -> list[float]:
        """Return our time as a share of a side's, round by round."""
        return ratios(self.milliseconds[OURS], self.milliseconds[name])

    def figures(self) -> dict[str, Any]:
        """Return all measurements, for JSON."""
        sides = {
            name: {
                "first": self.warm[name]["milliseconds"][0],
                "milliseconds": self.milliseconds[name],
                "cpu": self.cpu[name],
                "ratio": statistics.median(self.ratios(name)),
                "ratioSpread": spread(self.ratios(name)),
                "cpuRatio": statistics.median(self.cpu[OURS]) / statistics.median(self.cpu[name]),
                "values": self.warm[name]["values"],
                "difference": self.warm[name]["difference"],
            }
            for name in self.names
        }
        for name, warm in self.too_slow.items():
            sides[name] = {
                "first": warm["milliseconds"][0],
                "milliseconds": warm["milliseconds"][1:],
                "slow": True,
                "ratio": statistics.median(self.milliseconds[OURS]) / warm["milliseconds"][1],
                "ratioSpread": 0.0,
                "values": warm["values"],
                "difference": warm["difference"],
            }
        rounds = len(self.milliseconds[OURS])
        return {"steps": self.steps, "rounds": rounds, "sides": sides, "without": self.without}


def measure(page: Page, processes: CDPSession, case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one case."""
    race = Race(page, processes, case, options.sides)
    race.run(min(options.rounds, case.rounds or options.rounds))
    return race.figures()


def missed(name: str, case: Case, figures: dict[str, Any]) -> list[str]:
    """Return a sentence for each goal that is missed, and for each side that does not run the case or differs."""
    sides = figures["sides"]
    wrong = [
        f"{name}: {side} computed something else: {figure['difference']:.1e} from ours"
        for side, figure in sides.items()
        if not figure["difference"] <= case.tolerance
    ]
    slow = [
        f"{name}: {sides[side]['ratio']:.2f} of the time of {side}, not {goal:.2f}"
        for side, goal in case.goals.items()
        if side in sides and sides[side]["ratio"] > goal
    ]
    failed = [f"{name}: {side} does not run it: {reason}" for side, reason in figures["without"].items()]
    return wrong + slow + failed


def detail(name: str, figures: dict[str, Any]) -> Table:
    """Return the table of one case."""
    title = f"{name}: {figures['rounds']} rounds of {figures['steps']} steps, medians"
    table = Table(title=title, title_justify="left")
    table.add_column("side")
    for heading in ("first step", "ms", "spread", "ours / it", "spread", "CPU ms", "ours / it", "from ours", "value"):
        table.add_column(heading, justify="right")
    for side, figure in figures["sides"].items():
        table.add_row(
            side,
            f"{figure['first']:.0f}",
            f"{statistics.median(figure['milliseconds']):.2f}",
            f"{spread(figure['milliseconds']):.0%}",
            f"{figure['ratio']:.2f}",
            f"{figure['ratioSpread']:.0%}",
            f"{statistics.median(figure['cpu']):.2f}" if "cpu" in figure else "over a minute: no turns",
            f"{figure['cpuRatio']:.2f}" if "cpu" in figure else "",
            f"{figure['difference']:.1e}",
            f"{figure['values'][-1]:.6f}",
        )
    for side, reason in figures["without"].items():
        table.add_row(side, reason)
    return table


def summary(cases: dict[str, Any], sides: list[str]) -> list[list[str]]:
    """Return the headings, and a row for each case: our milliseconds and the ratios, losing ones too."""
    rivals = sides[1:]
    rows = [["case", "ours, ms", *(f"ours / {rival}" for rival in rivals), "rounds"]]
    for name, figures in cases.items():
        measured = figures["sides"]
        ratios = [_ratio(measured.get(rival)) for rival in rivals]
        milliseconds = statistics.median(measured[OURS]["milliseconds"])
        rows.append([name, f"{milliseconds:.2f}", *ratios, f"{figures['rounds']} x {figures['steps']}"])
    return rows


def _ratio(figure: dict[str, Any] | None) -> str:
    """Return the text of our time as a share of a rival's."""
    if figure is None:
        return "does not run it"
    if figure.get("slow"):
        return f"{figure['ratio']:.2f}, over a minute a step"
    return f"{figure['ratio']:.2f} (±{figure['ratioSpread'] / 2:.0%})"


def as_markdown(rows: list[list[str]]) -> Iterable[str]:
    """Yield the lines of a Markdown table whose first row has the headings."""
    headings, *cells = rows
    for row in (headings, ["---"] * len(headings), *cells):
        yield f"| {' | '.join(row)} |"


def fetched_borch() -> Path:
    """Return the path of borch's runtime, for which pip downloads the pinned wheel unless it was downloaded before."""
    runtime, pinned = BORCH / "borch_webgpu/_borch.js", HERE / "borch.txt"
    if not runtime.is_file() or runtime.stat().st_mtime < pinned.stat().st_mtime:
        shutil.rmtree(BORCH, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*pip, "--dest", BORCH, "--require-hashes", "--requirement", pinned], check=True)
        with zipfile.ZipFile(next(BORCH.glob("*.whl"))) as wheel:
            wheel.extract("borch_webgpu/_borch.js", BORCH)
    return runtime


def versions(sides: list[str]) -> dict[str, str]:
    """Return the pinned versions of the rivals among the sides."""
    pinned: dict[str, str] = json.loads((HERE / "package.json").read_text("utf-8"))["devDependencies"]
    every = {"jax-js": pinned["@jax-js/jax"], "TF.js": pinned["@tensorflow/tfjs"]}
    every["borch"] = re.findall("pyborch==([0-9.]+)", (HERE / "borch.txt").read_text("utf-8"))[0]
    return {name: version for name, version in every.items() if name in sides}


def command_of(options: argparse.Namespace) -> str:
    """Return the command line that measures the same: the cases, the rivals, the rounds and the adapter."""
    return shlex.join(
        [
            "benchmarks/browser/steps.py",
            *options.case,
            *(argument for side in options.side or () for argument in ("--side", side)),
            *("--rounds", str(options.rounds)),
            *(("--adapter", options.adapter) if options.adapter != SWIFTSHADER else ()),
            *(("--headed",) if options.headed else ()),
        ]
    )


def report_of(figures: dict[str, Any], kind: str) -> Report:
    """Return the figures as a report of the suite, for docs/benchmarks.md and the page Compare.

    Args:
        figures: of all cases, as for JSON.
        kind: of the adapter, "software" or "hardware".
    """
    machine = description(["optirs-web"])
    machine["versions"] |= {"Chromium": figures["chromium"], **figures["libraries"]}
    report = Report(figures["date"][:10], figures["command"], machine)
    report.devices["webgpu"] = {"description": f"{figures['adapter']}, in Chromium", "kind": kind, "rates": {}}
    for name, case in figures["cases"].items():
        sides = case["sides"].items()
        times = {
            side: [time / 1e3 for time in side_of["milliseconds"]] for side, side_of in sides if not side_of.get("slow")
        }
        slow = {
            side: f"a step takes {side_of['milliseconds'][0] / 1e3:.0f} s; ours {side_of['ratio']:.2f} of it"
            for side, side_of in sides
            if side_of.get("slow")
        }
        report.results.append(Result(f"page/{name}", "webgpu", times, notes=case["without"] | slow))
    return report


def chosen(parser: argparse.ArgumentParser, names: list[str], adapters: str) -> list[str]:
    """Return the cases whose names begin with one of `names`; without any, those for such adapters."""
    for name in names:
        if not any(case.startswith(name) for case in CASES):
            parser.error(f"there is no case {name!r}: {', '.join(CASES)}")
    if names:
        return [name for name in CASES if name.startswith(tuple(names))]
    return [name for name, case in CASES.items() if case.runs_on in ("", adapters)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("case", nargs="*", help=f"the beginning of a name; all by default: {', '.join(CASES)}")
    parser.add_argument("--side", action="append", choices=RIVALS, help="a rival; all by default")
    parser.add_argument("--before", type=Path, help="a wheel of another state of this library, as one more side")
    parser.add_argument("--small", action="store_true", help="miniatures of the GPT and ResNets: do all agree?")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each side, at least (default: %(default)s)")
    parser.add_argument("--report", type=Path, help="write the figures there as a report of optirs-web bench")
    parser.add_argument("--markdown", action="store_true", help="print the table of all cases for a document")
    options = parser.parse_args()
    names = chosen(parser, options.case, "software" if options.adapter == SWIFTSHADER else "hardware")
    before = [BEFORE] if options.before else []
    options.sides = [OURS, *before, *(name for name in RIVALS if name in (options.side or RIVALS))]
    files = {"gpt.py": GPT}
    if options.before:
        files[BEFORE] = options.before
    if "borch" in options.sides:
        files["borch.js"] = fetched_borch()

    console = Console(width=None if Console().is_terminal else 120)
    cases: dict[str, Any] = {}
    with chromium(options, **files) as (browser, address), blank_page(browser, address) as page:
        adapter = adapter_name(page)
        date = datetime.now(UTC).isoformat(timespec="seconds")
        libraries = versions(options.sides)
        numbered = [f"{name} {version}" for name, version in libraries.items()]
        machine = ", ".join([f"Chromium {browser.version}", adapter, *numbered, date])
        print(machine)
        processes = browser.new_browser_cdp_session()
        chosen_cases = {name: CASES[name].miniature() if options.small else CASES[name] for name in names}
        figures = {
            "chromium": browser.version,
            "adapter": adapter,
            "libraries": libraries,
            "date": date,
            "command": command_of(options),
            "tolerances": {name: case.tolerance for name, case in chosen_cases.items()},
            "cases": cases,
        }
        for name, case in chosen_cases.items():
            cases[name] = measure(page, processes, case, options)
            console.print(detail(name, cases[name]))
            if options.report:  # after each case: a run takes long
                report_of(figures, "software" if options.adapter == SWIFTSHADER else "hardware").write(options.report)

    rows = summary(cases, options.sides)
    if options.markdown:
        print("", machine, "", *as_markdown(rows), "", sep="\n")
    else:
        table = Table(*rows[0], title="Ours as a share of the others' time", title_justify="left")
        for row in rows[1:]:
            table.add_row(*row)
        console.print(table)
    same = ", ".join(f"{tolerance:g} ({name})" for name, tolerance in figures["tolerances"].items())
    print(f"Products, and the losses of the first steps, agree if no further apart than, of the largest value: {same}.")
    finish(
        options, figures, [words for name, case in chosen_cases.items() for words in missed(name, case, cases[name])]
    )


if __name__ == "__main__":
    main()
