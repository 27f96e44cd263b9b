"""16 MB up to the device and back: the library's way beside plain `to_js` and `to_py`.

A read waits for a copy on the device and for the browser to map it, whatever comes after; that part is shown alone.
"""

from __future__ import annotations

import argparse
import json
import statistics

from chromium import add_options, blank_page, chromium, finish
from rich.console import Console
from rich.table import Table

BESIDE = {"upload": "upload, to_js", "read": "read, to_py"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    options = parser.parse_args()

    code = """async (rounds) => {
        const { startProgram } = await import("/page/pyodide.js");
        const { program } = await startProgram("moves");
        return program.measure(rounds);
    }"""
    with chromium(options) as (browser, address), blank_page(browser, address) as page:
        times: dict[str, list[float]] = json.loads(page.evaluate(code, options.rounds))
    medians = {name: statistics.median(found) for name, found in times.items()}
    # Round by round, so that what slows the device down for a while does not count as moving bytes.
    moved = [max(0.0, read - mapped) for read, mapped in zip(times["read"], times["map alone"], strict=True)]

    table = Table(title=f"16 MB, {options.rounds} rounds", title_justify="left")
    table.add_column("what")
    for heading in ("min ms", "median ms", "max ms"):
        table.add_column(heading, justify="right")
    for name, found in {**times, "read less map": moved}.items():
        table.add_row(name, *(f"{one:.2f}" for one in (min(found), statistics.median(found), max(found))))
    Console().print(table)

    missed = [
        f"{ours}: {medians[ours]:.2f} ms, no faster than {theirs} with {medians[theirs]:.2f} ms"
        for ours, theirs in BESIDE.items()
        if medians[ours] >= medians[theirs]
    ]
    finish(options, {"milliseconds": times}, missed)


if __name__ == "__main__":
    main()
