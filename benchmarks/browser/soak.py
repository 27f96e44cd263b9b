"""Run 10,000 compiled training steps in one page, and check that no memory or count of objects grows.

Prints a row after every thousand steps, once JavaScript and Python have collected their garbage.
"""

from __future__ import annotations

import argparse

from chromium import add_options, blank_page, call, chromium, finish

COLUMNS = {
    "jsHeap": "JS heap kB",
    "wasmBytes": "wasm kB",
    "gpuBuffers": "GPU buffers",
    "jsObjectsInPython": "JS objects",
    "pythonProxiesInJs": "proxies",
    "pythonObjects": "Python objects",
    "liveBuffers": "live buffers",
    "liveBytes": "live kB",
    "pooledBytes": "pooled kB",
}
"""Headings by key of soak.js: JS objects are held by Python, proxies by JS; the last three are ow.memory_stats()."""
WIDTH = 15
GROWTH = {"jsHeap": 1.02, "pythonObjects": 1.002}
"""The largest value of the last row, as a multiple of the first. The other counts must not grow."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--steps", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--every", type=int, default=1_000, help="steps between two rows (default: %(default)s)")
    options = parser.parse_args()

    print("".join(f"{heading:>{WIDTH}}" for heading in ("steps", *COLUMNS.values(), "loss")))
    rows: list[dict[str, float]] = []
    with chromium(options) as (browser, address), blank_page(browser, address, "calls.js") as page:
        devtools = page.context.new_cdp_session(page)
        call(page, "soak.js", "start")
        for done in range(options.every, options.steps + 1, options.every):
            loss = call(page, "soak.js", "run", options.every)
            devtools.send("HeapProfiler.collectGarbage")
            row = call(page, "soak.js", "alive")
            devtools.send("HeapProfiler.collectGarbage")
            row["jsHeap"] = devtools.send("Runtime.getHeapUsage")["usedSize"]
            rows.append(row)
            cells = [f"{done:,}", *(shown(name, row[name]) for name in COLUMNS), f"{loss:.4f}"]
            print("".join(f"{cell:>{WIDTH}}" for cell in cells), flush=True)

    missed = [
        f"{heading} grew from {rows[0][name]:,.0f} to {rows[-1][name]:,.0f}"
        for name, heading in COLUMNS.items()
        if rows[-1][name] > rows[0][name] * GROWTH.get(name, 1)
    ]
    finish(options, {"every": options.every, "rows": rows}, missed)


def shown(name: str, value: float) -> str:
    """Return the text of a cell; bytes are shown as kB."""
    return f"{value / 1e3:,.1f}" if "kB" in COLUMNS[name] else f"{value:,.0f}"


if __name__ == "__main__":
    main()
