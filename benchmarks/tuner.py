"""Compare default and tuned kernels by shape: the gain in the search, and when both are timed again after it.

python benchmarks/tuner.py [--device NAME | --browser] [--shipped]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from optirs_web.runtime.tuner.candidates import TUNABLE

BROWSER = Path(__file__).resolve().parent / "browser"
WORTH_SHIPPING = 1.1


def measured_natively(device: str) -> Any:
    """Run `measure` of page/tuner.py on a device of this machine, with an empty cache instead of the user's."""
    spec = importlib.util.spec_from_file_location("tuner_cases", BROWSER / "page" / "tuner.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    os.environ.setdefault("MESA_SHADER_CACHE_DIR", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        return json.loads(asyncio.run(program.measure(device)))


def measured_in_a_page(options: argparse.Namespace) -> Any:
    """Run `measure` of page/tuner.py in Chromium."""
    sys.path.insert(0, str(BROWSER))
    from chromium import blank_page, chromium

    code = """async () => {
        const { installWheel, startPyodide, writeProgram } = await import("/page/pyodide.js");
        const pyodide = await startPyodide();
        await installWheel(pyodide);
        await writeProgram(pyodide, "tuner");
        return pyodide.runPythonAsync("import tuner; await tuner.measure('webgpu')");
    }"""
    with chromium(options) as (browser, address), blank_page(browser, address) as page:
        page.set_default_timeout(0)
        return json.loads(page.evaluate(code))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="vulkan", help="default: %(default)s")
    parser.add_argument("--browser", action="store_true", help="in Chromium, with the wheel that `make wheel` built")
    parser.add_argument("--shipped", action="store_true", help="print the rows of runtime/tuner/shipped.py")
    if "--browser" in sys.argv:
        sys.path.insert(0, str(BROWSER))
        from chromium import add_browser_options

        add_browser_options(parser)
    options = parser.parse_args()
    description, rows = measured_in_a_page(options) if options.browser else measured_natively(options.device)

    table = Table(title=description, title_justify="left")
    for heading in ("kernel", "shape class", "default", "us", "chosen", "us", "gain", "gain when timed again"):
        table.add_column(heading, justify="left" if heading in ("kernel", "shape class") else "right")
    shipped: dict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)
    for kernel, shape_class, default, chosen, *seconds in rows:
        before, after, before_again, after_again = (1e6 * duration for duration in seconds)
        texts = [TUNABLE[kernel].text(tuple(choice)) for choice in (default, chosen)]
        gains = before / after, before_again / after_again
        times = [texts[0], f"{before:.0f}", texts[1], f"{after:.0f}", *(f"{gain:.2f}" for gain in gains)]
        table.add_row(kernel, shape_class, *times)
        if min(gains) >= WORTH_SHIPPING:
            shipped[kernel][shape_class] = tuple(chosen)
    Console(width=120).print(table)
    if options.shipped:
        print(json.dumps(shipped, indent=4))


if __name__ == "__main__":
    main()
