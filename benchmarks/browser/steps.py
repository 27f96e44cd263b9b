"""Products and whole training steps in the browser: this library beside jax-js, TensorFlow.js and borch.

All live in one page of Chromium and take turns. Prints milliseconds per step, and ours as a share of theirs:
below 1 ours is faster.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from chromium import HERE, SWIFTSHADER, WHEELS, add_options, blank_page, busy, chromium, finish, more_wheel
from playwright.sync_api import CDPSession, Page
from rich.console import Console
from rich.table import Table

OURS, BEFORE = "ours", "before"
RIVALS = ["jax-js", "TF.js", "borch"]
BORCH = WHEELS.parent / "borch"
GPT = HERE.parents[1] / "examples" / "gpt.py"


class Case(NamedTuple):
    """A case of the benchmark: its kind in page/steps/problems.js and in each library's file, and its goals."""

    kind: str
    options: dict[str, Any]
    goals: dict[str, float]
    """The most that ours may take, as a share of each rival's time."""
    rounds: int | None = None
    """No more than these, before any are added: where a turn takes long."""
    same: float = 1e-4
    """How far a product, or the losses of the first steps, may be from ours, as a share of the largest value."""
    small: dict[str, Any] | None = None
    """Options in place of `options` that `--small` takes: where a step takes long."""
    runs_on: str = ""
    """The adapters of which it runs when no case is named: "software", "hardware", or all."""


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
    **{
        f"resnet18-{batch}": Case(
            "resnet",
            {"batch": batch},
            dict.fromkeys(RIVALS, 0.7),
            rounds=3,
            same=1e-2,
            small={"batch": 4, "side": 8, "blocks": [[8, 8, 1], [8, 16, 2]]},
            runs_on=adapters,
        )
        for batch, adapters in ((16, "software"), (32, "hardware"), (64, "hardware"))
    },
}
"""float32. A product is of two square matrices; a step of the others is forward, cross entropy, backward and Adam."""
STEADY = 0.1
"""The spread of a ratio, its interquartile range as a share of its median, above which rounds are added."""
ADDED = 3
"""Times the rounds, at most."""
TURN = 100.0
"""Milliseconds that the fastest side's turn takes, about; every side takes as many steps in its own."""
MOST_STEPS = 100
LONG = 5000.0
"""Milliseconds of a step above which a side gets no turn to warm up, and no rounds are added."""


class Race:
    """The sides of a case in one page."""

    def __init__(self, page: Page, processes: CDPSession, case: Case, names: list[str]) -> None:
        self.page, self.processes = page, processes
        errors: dict[str, str] = self._call("prepare(...values)", [case.kind, case.options, names])
        self.warm: dict[str, dict[str, Any]] = self._call("warmUp(values)", case.kind)
        self.without = errors | {name: warm["error"] for name, warm in self.warm.items() if warm["error"]}
        """Why sides have no figures."""
        self.too_slow = {
            name: warm for name, warm in self.warm.items() if warm["slow"] and name != OURS and name not in self.without
        }
        self.names = [name for name in names if name not in self.without and name not in self.too_slow]
        """Those that take turns."""
        last = [self.warm[name]["milliseconds"][-1] for name in self.names]
        fastest, self.long = min(last), max(last) > LONG
        self.steps = max(1, min(MOST_STEPS, round(TURN / fastest)))
        self.milliseconds: dict[str, list[float]] = {name: [] for name in names}
        self.cpu: dict[str, list[float]] = {name: [] for name in names}

    def _call(self, expression: str, values: Any) -> Any:
        return self.page.evaluate(
            f"async (values) => {{ const steps = await import('/page/steps.js'); return steps.{expression}; }}", values
        )

    def _turn(self, name: str) -> float:
        taken: float = self._call("turn(...values)", [name, self.steps])
        return taken

    def run(self, rounds: int) -> None:
        """Time every side once a round, and add rounds until the ratios are steady."""
        for name in [] if self.long else self.names:
            self._turn(name)  # warms up
        for number in range(rounds if self.long else rounds * ADDED):
            if number >= rounds and all(spread(self.ratios(name)) <= STEADY for name in self.names):
                break
            first = number % len(self.names)  # nobody always follows the same other
            for name in self.names[first:] + self.names[:first]:
                before = busy(self.processes)
                self.milliseconds[name].append(self._turn(name))
                self.cpu[name].append((busy(self.processes) - before) / self.steps)

    def ratios(self, name: str) -> list[float]:
        """Ours as a share of a side's time, round by round: what slows the machine down for a while hits both."""
        ours, theirs = self.milliseconds[OURS], self.milliseconds[name]
        return [one / other for one, other in zip(ours, theirs, strict=True)]

    def figures(self) -> dict[str, Any]:
        """Everything that was measured."""
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


def spread(values: Sequence[float]) -> float:
    """The interquartile range as a share of the median."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


def measure(page: Page, processes: CDPSession, case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one case."""
    race = Race(page, processes, case, options.sides)
    race.run(min(options.rounds, case.rounds or options.rounds))
    return race.figures()


def missed(name: str, figures: dict[str, Any]) -> list[str]:
    """Return the goals that a case misses."""
    sides = figures["sides"]
    wrong = [
        f"{name}: {side} computed something else: {figure['difference']:.1e} from ours"
        for side, figure in sides.items()
        if not figure["difference"] <= CASES[name].same
    ]
    slow = [
        f"{name}: {sides[side]['ratio']:.2f} of the time of {side}, not {goal:.2f}"
        for side, goal in CASES[name].goals.items()
        if side in sides and sides[side]["ratio"] > goal
    ]
    failed = [f"{name}: {side} does not run it: {reason}" for side, reason in figures["without"].items()]
    return wrong + slow + failed


def detail(name: str, figures: dict[str, Any]) -> Table:
    """The table of one case."""
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
    """Rows: each case with our milliseconds and the ratios, losing ones too; the first row has the headings."""
    rivals = sides[1:]
    rows = [["case", "ours, ms", *(f"ours / {rival}" for rival in rivals), "rounds"]]
    for name, figures in cases.items():
        measured = figures["sides"]
        ratios = [_ratio(measured.get(rival)) for rival in rivals]
        milliseconds = statistics.median(measured[OURS]["milliseconds"])
        rows.append([name, f"{milliseconds:.2f}", *ratios, f"{figures['rounds']} x {figures['steps']}"])
    return rows


def _ratio(figure: dict[str, Any] | None) -> str:
    """Ours as a share of a rival's time, in words."""
    if figure is None:
        return "does not run it"
    if figure.get("slow"):
        return f"{figure['ratio']:.2f}, over a minute a step"
    return f"{figure['ratio']:.2f} (±{figure['ratioSpread'] / 2:.0%})"


def as_markdown(rows: list[list[str]]) -> Iterable[str]:
    """The lines of a table."""
    heading, *others = rows
    for row in (heading, ["---"] * len(heading), *others):
        yield f"| {' | '.join(row)} |"


def fetched_borch() -> Path:
    """The runtime of borch, from the wheel that pip downloads when it is not there."""
    runtime, pinned = BORCH / "borch_webgpu/_borch.js", HERE / "borch.txt"
    if not runtime.is_file() or runtime.stat().st_mtime < pinned.stat().st_mtime:
        shutil.rmtree(BORCH, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*pip, "--dest", BORCH, "--require-hashes", "--requirement", pinned], check=True)
        with zipfile.ZipFile(next(BORCH.glob("*.whl"))) as wheel:
            wheel.extract("borch_webgpu/_borch.js", BORCH)
    return runtime


def versions(sides: list[str]) -> dict[str, str]:
    """The pinned versions of the others."""
    pinned: dict[str, str] = json.loads((HERE / "package.json").read_text("utf-8"))["devDependencies"]
    found = {"jax-js": pinned["@jax-js/jax"], "TF.js": pinned["@tensorflow/tfjs"]}
    found["borch"] = re.findall("pyborch==([0-9.]+)", (HERE / "borch.txt").read_text("utf-8"))[0]
    return {name: version for name, version in found.items() if name in sides}


def chosen(parser: argparse.ArgumentParser, names: list[str], adapters: str) -> list[str]:
    """The cases whose names begin with one of `names`; without any, those that are for such adapters."""
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
    parser.add_argument("--side", action="append", choices=RIVALS, help="a side beside ours; all by default")
    parser.add_argument("--before", type=Path, help="a wheel of another state of this library, as one more side")
    parser.add_argument("--small", action="store_true", help="miniatures of the GPT and ResNets: do all agree?")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each side, at least (default: %(default)s)")
    parser.add_argument("--markdown", action="store_true", help="print the table of all cases for a document")
    options = parser.parse_args()
    names = chosen(parser, options.case, "software" if options.adapter == SWIFTSHADER else "hardware")
    before = [BEFORE] if options.before else []
    options.sides = [OURS, *before, *(name for name in RIVALS if name in (options.side or RIVALS))]
    files = {"gpt.py": GPT}
    if options.before:
        files |= {BEFORE: options.before, f"more-{BEFORE}": more_wheel(options.before)}
    if "borch" in options.sides:
        files["borch.js"] = fetched_borch()

    console = Console(width=None if Console().is_terminal else 120)
    cases: dict[str, Any] = {}
    with chromium(options, **files) as (browser, address), blank_page(browser, address) as page:
        adapter = page.evaluate("async () => (await import('/page/race.js')).adapterName()")
        date = datetime.now(UTC).isoformat(timespec="seconds")
        libraries = versions(options.sides)
        named = [f"{name} {version}" for name, version in libraries.items()]
        machine = ", ".join([f"Chromium {browser.version}", adapter, *named, date])
        print(machine)
        processes = browser.new_browser_cdp_session()
        for name in names:
            case = CASES[name]
            if options.small and case.small:
                case = case._replace(options=case.small)
            cases[name] = measure(page, processes, case, options)
            console.print(detail(name, cases[name]))
        figures = {
            "chromium": browser.version,
            "adapter": adapter,
            "libraries": libraries,
            "date": date,
            "tolerances": {name: CASES[name].same for name in names},
            "cases": cases,
        }

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
    finish(options, figures, [words for name in names for words in missed(name, cases[name])])


if __name__ == "__main__":
    main()
