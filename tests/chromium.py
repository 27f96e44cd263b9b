"""A real Chromium for the tests, with Pyodide and the library in a page: what runs Python on the device `webgpu`.

WebGPU is SwiftShader's, on the processor, unless CHROMIUM_ARGS asks for another adapter.
"""

import http.server
import io
import os
import shutil
import threading
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from requirements import missing
from wire import decode, encode

from optirs_web.demo_site.library import library_wheel

__all__ = [
    "CRASH",
    "BrowserPython",
    "browser",
    "browser_python",
    "chromium_context",
    "close_crashed_pages",
    "page",
    "pyodide_folder",
]

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
EXAMPLES = ROOT / "examples"
SCREENSHOTS = ROOT / "build" / "screenshots"

FLAGS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-webgpu",
]
ADAPTER = [
    "--use-webgpu-adapter=swiftshader",
    # SwiftShader clears an array of a workgroup with an instruction for each element, which takes seconds to compile
    # where there are a thousand. Without its way Dawn clears it in a loop.
    "--disable-dawn-features=use_vulkan_zero_initialize_workgroup_memory_extension",
]
SLOW = 240_000
"""Milliseconds for what runs on a software GPU."""
CRASH = "Target crashed"
"""What Playwright says when Chromium's process of a page is gone: once in thousands of pages, as elsewhere with Pyodide
(pyodide/pyodide#5702, #6106). Such a test, and no other, is run a second time: see pyproject.toml.
"""


def chromium_path():
    """The browser: CHROMIUM, or the first of the usual names on the path."""
    names = [os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    return next((result for result in map(shutil.which, filter(None, names)) if result), None)


def pyodide_folder():
    """OPTIRS_PYODIDE_DIST (a full distribution, with NumPy), or the npm package: the interpreter alone."""
    folder = Path(os.environ.get("OPTIRS_PYODIDE_DIST") or ROOT / "demo_site/frontend/node_modules/pyodide")
    if not (folder / "pyodide.mjs").is_file():
        missing("webgpu", f"Pyodide is not in {folder}: make setup")
    return folder


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium with WebGPU."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        missing("webgpu", str(error))
    path = chromium_path()
    if path is None:
        missing("webgpu", "no Chromium: sh scripts/setup_browser.sh")
    arguments = FLAGS + (os.environ.get("CHROMIUM_ARGS", "").split() or ADAPTER)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, headless=True, args=arguments)
        yield opened
        opened.close()


@contextmanager
def chromium_context(browser, **options):
    """A page in a context of its own. At its end, what the page has complained of is an error."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.complaints, page.has_crashed = [], False
    page.on("crash", lambda: setattr(page, "has_crashed", True))
    page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    try:
        yield page
        assert page.has_crashed or not page.complaints, page.complaints
    finally:
        context.close()


def close_crashed_pages(item):
    """Close the pages that crashed in a test, so that the next one to ask for them opens new ones."""
    for fixture in item._request._fixture_defs.values():
        if fixture.cached_result is not None and getattr(fixture.cached_result[0], "has_crashed", False):
            fixture.finish(item._request)


@pytest.fixture
def page(browser):
    """A fresh page; a test fails if it logs an error. Clear `page.complaints` where errors are meant."""
    with chromium_context(browser) as page:
        yield page


@pytest.fixture(scope="session")
def screenshot():
    """`screenshot(page, name)` keeps a picture for people to look at, in build/screenshots."""

    def take(page, name, **options):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True, **options)

    return take


# Python in a page.

CONTENT_TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm"}

SETUP = """
async ([folder]) => {
  const { loadPyodide } = await import("/pyodide/pyodide.mjs");
  const pyodide = await loadPyodide({ indexURL: "/pyodide/" });
  pyodide.unpackArchive(await (await fetch("/library.whl")).arrayBuffer(), "wheel");
  pyodide.unpackArchive(await (await fetch("/cases.zip")).arrayBuffer(), "zip", { extractDir: "/cases" });
  if (folder.numpy) await pyodide.loadPackage("numpy");
  pyodide.runPython("import sys; sys.path.insert(0, '/cases')");
  globalThis.pyodide = pyodide;
  globalThis.call = async (number) => {
    const run = pyodide.globals.get("call");
    const request = new Uint8Array(await (await fetch(`/in/${number}`)).arrayBuffer());
    const result = await run.callPromising(request);
    run.destroy();
    const bytes = result.toJs();
    result.destroy();
    // As a blob: Chromium tells Playwright of any other body by value, and 100 MB are more than that can take.
    await fetch(`/out/${number}`, { method: "POST", body: new Blob([bytes]) });
  };
}
"""

CALL = """
import gc
import numerics, wire
import optirs_web as ow

def call(request):
    if request.length > 1 << 24:
        gc.collect()  # the memory of a page is small, and cycles of earlier cases may hold some
    function, arguments = wire.decode(request.to_bytes())
    return wire.encode(getattr(numerics, function)(*arguments, device=ow.device("webgpu")))
"""


def cases_archive():
    """The modules of the tests that run in the page."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("numerics", "schedule_cases", "wire"):
            archive.write(TESTS / f"{name}.py", f"{name}.py")
        for path in EXAMPLES.glob("*.py"):
            archive.write(path, path.name)
        for folder in ("operation_cases", "optimizer_cases"):
            for path in (TESTS / folder).glob("*.py"):
                archive.write(path, f"{folder}/{path.name}")
    return packed.getvalue()


class Exchange:
    """A server on loopback: Pyodide, the library's wheel, and what goes into the page and comes out of it."""

    def __init__(self):
        self.given, self.taken = {}, {}
        self.archives = {"/library.whl": library_wheel(), "/cases.zip": cases_archive()}
        pyodide = pyodide_folder()
        exchange = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                kind, _, rest = self.path[1:].partition("/")
                content = None
                if kind == "pyodide" and (pyodide / rest).is_file():
                    content = (pyodide / rest).read_bytes()
                elif self.path in exchange.archives:
                    content = exchange.archives[self.path]
                elif self.path == "/":
                    content = b"<!doctype html><link rel=icon href=data:,><title>Python on WebGPU</title>"
                elif kind == "in":
                    content = exchange.given.pop(rest)
                self.send_response(404 if content is None else 200)
                default = "text/html" if self.path == "/" else "application/octet-stream"
                self.send_header("Content-Type", CONTENT_TYPES.get(Path(rest).suffix, default))
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def do_POST(self):
                exchange.taken[self.path.rpartition("/")[2]] = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                """Quiet."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class BrowserPython:
    """A page with Pyodide and the library. `run` executes Python, `call` a function of `numerics`."""

    def __init__(self, page):
        self.page = page
        self.exchange = Exchange()
        self._calls = 0
        try:
            page.goto(self.exchange.url)
            page.evaluate(SETUP, [{"numpy": bool(os.environ.get("OPTIRS_PYODIDE_DIST"))}])
            self.run(CALL)
        except BaseException:
            self.close()
            raise

    @property
    def has_crashed(self):
        """Its process is gone, or Python in it."""
        return self.page.has_crashed

    def _evaluate(self, script, value):
        try:
            return self.page.evaluate(script, value)
        except BaseException as error:
            if "PythonError" not in str(error):  # but by a timeout, or since Python has ended
                self.page.has_crashed = True
            raise

    def run(self, source):
        """The value of the last expression; Python may wait (JSPI) and `await`."""
        return self._evaluate("(source) => pyodide.runPythonAsync(source)", source)

    def transfer(self, script, value, array):
        """Send `value` to a script of the page, which is given its number, and decode what it posts back."""
        self._calls += 1
        number = str(self._calls)
        self.exchange.given[number] = encode(value)
        self._evaluate(script, number)
        return decode(self.exchange.taken.pop(number), array)

    def call(self, function, arguments, array):
        """A function of `numerics` on the device `webgpu`."""
        return self.transfer("(number) => call(number)", [function, arguments], array)

    def close(self):
        self.exchange.close()


@pytest.fixture(scope="session")
def browser_python(browser):
    """Python in a page, once for all numerical cases."""
    with chromium_context(browser) as page:
        python = BrowserPython(page)
        yield python
        python.close()
