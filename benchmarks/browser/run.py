"""Adam in the browser: this library compared with jax-js and TensorFlow.js, alternating in one page of Chromium.

Prints milliseconds per step of each with the ratio to ours, and the WebGPU calls of a step.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from chromium import adapter_name, add_options, blank_page, call, chromium, finish, processor_milliseconds
from playwright.sync_api import Browser, Page
from rich.console import Console
from rich.table import Table

from optirs_web.benchmarks.timing import rotated

CASES = {"20 x 65,536": (20, 65536), "20 x 1,024": (20, 1024)}
LIBRARIES = {"ours": "", "jax-js jit": "jax-js", "jax-js eager": "", "TF.js": "TF.js", "TF.js batched": "TF.js"}
"""For each side the library whose target it counts for; the fastest side of a library counts."""
TARGETS = {
    "20 x 65,536": {"jax-js": 3.0, "TF.js": 5.0},
    "20 x 1,024": {"jax-js": 6.0, "TF.js": 10.0},
}
CALLS = {
    "dispatches": "dispatches",
    "submits": "submits",
    "bindGroups": "bind groups",
    "buffers": "buffers",
    "writes": "writes",
    "pipelines": "pipelines",
}
SAME = 1e-5
"""Most relative difference of parameters from ours, after the first round: rounding errors grow with the steps."""
CORRECT = 1e-4
"""Most relative difference from float64 after the last round. One step moves a parameter by about 1e-3."""


class Race:
    """The sides in one page."""

    def __init__(self, page: Page, names: list[str], case: str) -> None:
        self.page = page
        tensors, size = CASES[case]
        call(page, "race.js", "prepare", {"names": names, "tensors": tensors, "size": size})

    def run(self, name: str, steps: int) -> dict[str, float]:
        """Run steps of a side; return the milliseconds of each: "total", and until it was enqueued, "host"."""
        milliseconds: dict[str, float] = call(self.page, "race.js", "turn", name, steps)
        return milliseconds

    def compare(self) -> dict[str, dict[str, float]]:
        """Return by side the relative differences of its parameters: "fromFirst" side, and "fromFloat64"."""
        differences: dict[str, dict[str, float]] = call(self.page, "race.js", "compare")
        return differences


def timed(browser: Browser, address: str, case: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the times and differences of each side, from a page in which no calls are counted."""
    names, steps = options.sides, options.steps
    processes = browser.new_browser_cdp_session()
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with blank_page(browser, address) as page:
        race = Race(page, names, case)
        for name in names:
            race.run(name, steps)
        early = race.compare()
        for name in names:
            race.run(name, steps)
        for number in range(options.rounds):
            for name in rotated(names, number):
                before = processor_milliseconds(processes)
                run = race.run(name, steps)
                runs[name].append({**run, "cpu": (processor_milliseconds(processes) - before) / steps})
        late = race.compare()
    return {
        name: {
            **{figure: [run[figure] for run in runs[name]] for figure in ("total", "host", "cpu")},
            "fromOurs": early[name]["fromFirst"],
            "fromFloat64": late[name]["fromFloat64"],
        }
        for name in names
    }


def counted(browser: Browser, address: str, case: str, name: str, steps: int) -> dict[str, float]:
    """Return the WebGPU calls of a step of one side, counted in a page of its own."""
    with blank_page(browser, address, "calls.js") as page:
        race = Race(page, [name], case)
        race.run(name, steps)
        before = page.evaluate("calls()")
        race.run(name, steps)
        after = page.evaluate("calls()")
    return {key: (after[key] - before[key]) / steps for key in CALLS}


def measure(browser: Browser, address: str, case: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one case, by side."""
    figures = timed(browser, address, case, options)
    for name, figure in figures.items():
        figure["calls"] = counted(browser, address, case, name, options.steps)
        for kind in ("total", "cpu"):
            figure[f"{kind}Ratio"] = statistics.median(figure[kind]) / statistics.median(figures["ours"][kind])
    return figures


def missed(case: str, figures: dict[str, Any]) -> list[str]:
    """Return a sentence for each target that a case misses."""
    sentences = []
    for name, figure in figures.items():
        if not (figure["fromFloat64"] <= CORRECT and figure["fromOurs"] <= SAME):
            off = f"{figure['fromFloat64']:.1e} from float64, {figure['fromOurs']:.1e} from ours"
            sentences.append(f"{case}: {name} computed other parameters: {off}")
    for library, target in TARGETS[case].items():
        ratios = [figure["totalRatio"] for name, figure in figures.items() if LIBRARIES[name] == library]
        if ratios and min(ratios) < target:
            sentences.append(f"{case}: {min(ratios):.1f}x as fast as {library}, not {target:.0f}x")
    return sentences


def show(console: Console, case: str, figures: dict[str, Any], options: argparse.Namespace) -> None:
    """Print two tables: the times, and the calls."""
    times = Table(title=f"Adam, {case}, median of {options.rounds} times {options.steps} steps", title_justify="left")
    times.add_column("side")
    for heading in ("ms/step", "min", "max", "to ours", "target", "until enqueued", "CPU ms", "to ours"):
        times.add_column(heading, justify="right")
    calls = Table(title="Calls per step, and relative differences", title_justify="left")
    calls.add_column("side")
    for heading in (*CALLS.values(), "from ours", "from float64"):
        calls.add_column(heading, justify="right")
    for name, figure in figures.items():
        total, host, cpu = (statistics.median(figure[kind]) for kind in ("total", "host", "cpu"))
        target = TARGETS[case].get(LIBRARIES[name])
        times.add_row(
            name,
            *(f"{time:.3f}" for time in (total, min(figure["total"]), max(figure["total"]))),
            f"{figure['totalRatio']:.1f}x",
            f"{target:.0f}x" if target else "",
            *(f"{time:.3f}" for time in (host, cpu)),
            f"{figure['cpuRatio']:.1f}x",
        )
        differences = (figure["fromOurs"], figure["fromFloat64"])
        calls.add_row(
            name,
            *(f"{figure['calls'][key]:.4g}" for key in CALLS),
            *(f"{difference:.1e}" for difference in differences),
        )
    console.print(times, calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--case", action="append", choices=CASES, help="may be repeated; all by default")
    parser.add_argument(
        "--side", action="append", choices=LIBRARIES, help="a side to compare ours with; all by default"
    )
    parser.add_argument("--steps", type=int, default=50, help="steps between two waits (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (default: %(default)s)")
    options = parser.parse_args()
    options.sides = ["ours", *(name for name in LIBRARIES if name != "ours" and name in (options.side or LIBRARIES))]

    console = Console(width=None if Console().is_terminal else 120)
    cases: dict[str, Any] = {}
    failures: list[str] = []
    with chromium(options) as (browser, address):
        with blank_page(browser, address) as page:
            adapter = adapter_name(page)
        console.print(f"Chromium {browser.version}, {adapter}")
        for case in options.case or CASES:
            cases[case] = measure(browser, address, case, options)
            show(console, case, cases[case], options)
            failures += missed(case, cases[case])
        figures = {"chromium": browser.version, "adapter": adapter, "steps": options.steps, "cases": cases}
    finish(options, figures, failures)


if __name__ == "__main__":
    main()
