"""Uploads and reads of 16 MB: the library's, compared with Pyodide's `to_js` and `to_py`.

Every read waits for a copy on the device and for the browser to map it; that part is also shown by itself.
"""

from __future__ import annotations

import argparse
import json
import statistics

from chromium import add_options, blank_page, chromium, finish, print_times

PLAIN = {"upload": "upload, to_js", "read": "read, to_py"}
"""For each move, the one with Pyodide's conversions that it must be faster than."""


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
    medians = {name: statistics.median(values) for name, values in times.items()}
    # Within a round, so that what slows the device down for a while does not count as moving bytes.
    moved = [max(0.0, read - mapped) for read, mapped in zip(times["read"], times["map alone"], strict=True)]
    print_times(f"16 MB, {options.rounds} rounds", "move", {**times, "read less map": moved})

    missed = [
        f"{move}: {medians[move]:.2f} ms, no faster than {plain} with {medians[plain]:.2f} ms"
        for move, plain in PLAIN.items()
        if medians[move] >= medians[plain]
    ]
    finish(options, {"milliseconds": times}, missed)


if __name__ == "__main__":
    main()
