"""What the browser benchmarks share: a local server, Chromium, and pages in which Pyodide runs.

The server gives the page what a site would: this folder's pages, the npm packages beside them, and the library's wheel.
Its pages are isolated from other origins, so that the page's clock ticks in microseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, sync_playwright

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
    """Serves /page/…, /npm/…, and single files by name."""

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
        """The file for a request; one that does not exist for whatever lies outside."""
        name = urlsplit(path).path.strip("/")
        if name in self.files:
            return str(self.files[name])
        folder, _, rest = name.partition("/")
        root = FOLDERS.get(folder)
        file = (root / rest).resolve() if root else None
        return str(file) if file and file.is_relative_to(root.resolve()) else str(HERE / "no such file")

    def end_headers(self) -> None:
        """Adds what makes the page cross-origin isolated."""
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Stays silent."""


def built_wheel() -> Path:
    """The wheel for browsers that `make wheel` built."""
    found = sorted(WHEELS.glob("optirs_web-*-pyemscripten_*.whl"))
    if not found:
        raise SystemExit("There is no wheel in build/wheel: run `make wheel` first.")
    return found[-1]


def more_wheel(wheel: Path) -> Path:
    """The second wheel, beside the first."""
    return wheel.with_name(wheel.name.replace("optirs_web", "optirs_web_more"))


def found_browser() -> str:
    """The browser that CHROMIUM names, or the first of the usual names on the PATH."""
    asked = os.environ.get("CHROMIUM")
    found = next(filter(None, map(shutil.which, [asked] if asked else BROWSERS)), None)
    if found is None:
        raise SystemExit(f"There is no {asked or 'Chromium on the PATH'}: name it with --chromium.")
    return found


def install() -> None:
    """Installs the npm packages that package-lock.json pins, unless they are there."""
    if not (HERE / "node_modules/.package-lock.json").is_file():  # npm writes it last
        subprocess.run(["npm", "ci"], cwd=HERE, check=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of every browser benchmark."""
    parser.add_argument("--headed", action="store_true", help="show the browser, for GPUs that headless Chromium lacks")
    parser.add_argument(
        "--adapter",
        default=SWIFTSHADER,
        help="Chromium's --use-webgpu-adapter; 'default' leaves the choice to Chromium (default: %(default)s)",
    )
    parser.add_argument("--chromium", help=f"the browser to run (default: CHROMIUM, or one of {', '.join(BROWSERS)})")
    parser.add_argument("--wheel", type=Path, help="the library's wheel (default: what `make wheel` built)")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")


@contextlib.contextmanager
def chromium(options: argparse.Namespace, **files: Path) -> Iterator[tuple[Browser, str]]:
    """A running browser, and the address of the server with the pages; what else it serves by name."""
    install()
    wheel = options.wheel or built_wheel()
    handler = functools.partial(Handler, files={"wheel": wheel, "more": more_wheel(wheel), **files})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    adapter = [] if options.adapter == "default" else [f"--use-webgpu-adapter={options.adapter}"]
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=options.chromium or found_browser(), headless=not options.headed, args=FLAGS + adapter
            )
            with contextlib.closing(browser):
                yield browser, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def finish(options: argparse.Namespace, figures: dict[str, Any], missed: list[str]) -> None:
    """Tells what was missed, writes the JSON file, and leaves with 1 if that was asked for."""
    for one in missed:
        print(f"missed: {one}")
    if options.json:
        options.json.write_text(json.dumps({**figures, "missed": missed}, indent=2) + "\n")
    if options.check and missed:
        raise SystemExit(1)


@contextlib.contextmanager
def blank_page(browser: Browser | BrowserContext, address: str, *scripts: str) -> Iterator[Page]:
    """A new page, in which `scripts` of the folder `page` run before anything else does."""
    page = browser.new_page()
    page.set_default_timeout(0)  # software rendering takes its time
    page.on("console", lambda message: print(f"  page: {message.text[:500]}") if message.type != "info" else None)
    page.on("pageerror", lambda error: print(f"  page: {error}"))
    for script in scripts:
        page.add_init_script(path=HERE / "page" / script)
    page.goto(f"{address}/page/index.html")
    with contextlib.closing(page):
        yield page


def busy(processes: CDPSession) -> float:
    """Milliseconds that processors have worked for the page and for its GPU: all there is to a software adapter."""
    found = processes.send("SystemInfo.getProcessInfo")["processInfo"]
    return 1e3 * sum(one["cpuTime"] for one in found if one["type"].lower() in ("gpu", "renderer"))
