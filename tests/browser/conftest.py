"""Fixtures of the tests of pages: the demo's server, timeouts, and the sizes of a screen and a phone."""

import os
import re
from urllib.request import urlopen

import pytest
from chromium import ROOT, SLOW, pyodide_folder
from demo_servers import running_server
from requirements import missing

from optirs_web.demo_site.library import wheel_name

# Only a full distribution of Pyodide has NumPy.
collect_ignore = [] if os.environ.get("OPTIRS_PYODIDE_DIST") else ["test_numpy.py"]


TRAINING = re.compile("^Training on ")  # and then the truth about the adapter


@pytest.fixture(scope="session")
def site(browser, tmp_path_factory):
    """Return the address of a running demo under a prefix; no page may request addresses above it."""
    from playwright.sync_api import expect

    pyodide_folder()
    if not (ROOT / "demo_site/static/home.js").is_file():
        missing("webgpu", "the pages are not built: make bundles")
    expect.set_options(timeout=60_000)  # a software GPU on a busy machine
    with running_server(tmp_path_factory.mktemp("demo"), prefix="/some/prefix") as (_, address):
        url = address.rstrip("/")
        with urlopen(f"{url}/wheel/{wheel_name()}") as wheel:
            wheel.read()  # made at the first request: no page's time is spent on it
        yield url


@pytest.fixture
def open_training(page, site):
    """`open_training("/digits")`: the page, once it trains."""
    from playwright.sync_api import expect

    def open_page(address):
        page.goto(f"{site}{address}")
        expect(page.locator("#status")).to_have_text(TRAINING, timeout=SLOW)
        return page

    return open_page


@pytest.fixture
def fits(screenshot):
    """`fits(page, name)`: light on a screen and dark on a phone it does not scroll sideways; with a picture of each."""

    def look(page, name, in_view="body"):
        for theme, width in [("light", 1280), ("dark", 390)]:
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 844})
            page.locator(in_view).scroll_into_view_if_needed()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            screenshot(page, f"{name}-{theme}-{width}")

    return look


_REMEMBER_DEVICE = """
const requestDevice = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = async function (...given) {
  return self.lastDevice = await requestDevice.apply(this, given);
};
"""


@pytest.fixture
def lose_device(page):
    """`lose_device()`: the GPU device of the page's Python is destroyed, as by a driver that is reset."""

    def remembering(route):
        response = route.fetch()
        route.fulfill(response=response, body=_REMEMBER_DEVICE + response.text())

    page.route("**/static/worker.js*", remembering)
    return lambda: page.workers[-1].evaluate("self.lastDevice.destroy()")
