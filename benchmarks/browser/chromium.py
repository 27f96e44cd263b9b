"""Shared by the browser benchmarks: a local server, Chromium, pages in which Pyodide runs, options and tables.

The server has this folder's pages, the npm packages next to them, and the library's wheel. Its pages are isolated from
other origins, so that their clocks tick in microseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import json
import os
import shutil
import statistics
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, sync_playwright
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
WHEELS = HERE.parents[1] / "build" / "wheel"
FOLDERS = {"page": HERE / "page", "npm": HERE / "node_modules"}
SWIFTSHADER = "swiftshader"
BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
FLAGS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-webgpu",
]


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the folders /page and /npm, and single files by name."""

    extensions_map: ClassVar[dict[str, str]] = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def __init__(self, *arguments: Any, files: dict[str, Path]) -> None:
        self.files = files
        super().__init__(*arguments)

    def translate_path(self, path: str) -> str:
        """Return the path of the requested file; one that does not exist for any other."""
        name = urlsplit(path).path.strip("/")
        if name in self.files:
            return str(self.files[name])
        folder, _, inner_path = name.partition("/")
        root = FOLDERS.get(folder)
        file = (root / inner_path).resolve() if root else None
        return str(file) if file and file.is_relative_to(root.resolve()) else str(HERE / "no such file")

    def end_headers(self) -> None:
        """Add the headers that isolate the page from other origins."""
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def built_wheel() -> Path:
    """Return the library's wheel that `make wheel` built."""
    wheels = sorted(WHEELS.glob("optirs_web-*.whl"))
    if not wheels:
        raise SystemExit("There is no wheel in build/wheel: run `make wheel` first.")
    return wheels[-1]


def found_browser() -> str:
    """Return the path of the browser that CHROMIUM names, or of the first of `BROWSERS` on the PATH."""
    name = os.environ.get("CHROMIUM")
    path = next(filter(None, map(shutil.which, [name] if name else BROWSERS)), None)
    if path is None:
        raise SystemExit(f"There is no {name or 'Chromium on the PATH'}: name it with --chromium.")
    return path


def install() -> None:
    """Install the npm packages that package-lock.json pins, unless they are installed."""
    if not (HERE / "node_modules/.package-lock.json").is_file():  # npm writes it last
        subprocess.run(["npm", "ci"], cwd=HERE, check=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every browser benchmark: those of `chromium` and of `finish`."""
    add_browser_options(parser)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")


def add_browser_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `chromium`."""
    parser.add_argument("--headed", action="store_true", help="show the browser, for GPUs that headless Chromium lacks")
    parser.add_argument(
        "--adapter",
        default=SWIFTSHADER,
        help="Chromium's --use-webgpu-adapter; 'default' leaves the choice to Chromium (default: %(default)s)",
    )
    parser.add_argument("--chromium", help=f"the browser to run (default: CHROMIUM, or one of {', '.join(BROWSERS)})")
    parser.add_argument("--wheel", type=Path, help="the library's wheel (default: what `make wheel` built)")


@contextlib.contextmanager
def chromium(options: argparse.Namespace, **files: Path) -> Iterator[tuple[Browser, str]]:
    """Run the server and the browser in a block, which is given the browser and the server's address.

    CHROMIUM_ARGS has more arguments for the browser.

    Args:
        options: those of `add_browser_options`.
        files: more files that the server has, by name.
    """
    install()
    handler = functools.partial(Handler, files={"wheel": options.wheel or built_wheel(), **files})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    is_default = options.adapter == "default"
    adapter = [] if is_default else [f"--use-webgpu-adapter={options.adapter}"]
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=options.chromium or found_browser(),
                headless=not options.headed,
                args=[*FLAGS, *adapter, *os.environ.get("CHROMIUM_ARGS", "").split()],
                ignore_default_args=["--enable-unsafe-swiftshader"] if is_default else None,
            )
            with contextlib.closing(browser):
                yield browser, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def finish(options: argparse.Namespace, figures: dict[str, Any], missed: list[str]) -> None:
    """Print the targets that were missed, write the JSON file, and exit with 1 for `--check` if there are any."""
    for target in missed:
        print(f"missed: {target}")
    if options.json:
        options.json.write_text(json.dumps({**figures, "missed": missed}, indent=2) + "\n")
    if options.check and missed:
        raise SystemExit(1)


@contextlib.contextmanager
def blank_page(browser: Browser | BrowserContext, address: str, *scripts: str) -> Iterator[Page]:
    """Open a page for a block; `scripts` of the folder `page` run in it before any other."""
    page = browser.new_page()
    page.set_default_timeout(0)  # software rendering takes its time
    page.on("console", lambda message: print(f"  page: {message.text[:500]}") if message.type != "info" else None)
    page.on("pageerror", lambda error: print(f"  page: {error}"))
    for script in scripts:
        page.add_init_script(path=HERE / "page" / script)
    page.goto(f"{address}/page/index.html")
    with contextlib.closing(page):
        yield page


def call(page: Page, module: str, function: str, *values: Any) -> Any:
    """Return the awaited result of a function that a module of the folder `page` exports."""
    code = "async ([module, name, values]) => (await import(`/page/${module}`))[name](...values)"
    return page.evaluate(code, [module, function, list(values)])


def adapter_name(page: Page) -> str:
    """Return the name that the page's WebGPU adapter reports."""
    name: str = call(page, "race.js", "adapterName")
    return name


def processor_milliseconds(processes: CDPSession) -> float:
    """Return the processor time of the page's and the GPU's processes so far: of all work, on a software adapter."""
    running = processes.send("SystemInfo.getProcessInfo")["processInfo"]
    return 1e3 * sum(process["cpuTime"] for process in running if process["type"].lower() in ("gpu", "renderer"))


def print_times(title: str, heading: str, milliseconds: Mapping[str, Sequence[float]]) -> None:
    """Print minimum, median and maximum of times in milliseconds, by name; `heading` is that of the names."""
    table = Table(title=title, title_justify="left")
    table.add_column(heading)
    for column in ("min ms", "median ms", "max ms"):
        table.add_column(column, justify="right")
    for name, times in milliseconds.items():
        table.add_row(name, *(f"{time:.2f}" for time in (min(times), statistics.median(times), max(times))))
    Console().print(table)
