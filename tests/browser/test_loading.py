"""While Python loads the page shows a recorded run and how far it is; where it cannot be loaded, why, and a button."""

import re
from http import HTTPStatus

import pytest
from chromium import SLOW, pyodide_folder
from demo_servers import running_server
from playwright.sync_api import expect

from optirs_web.demo_site.library import page_wheel
from optirs_web.demo_site.pyodide import PYODIDE_CDN, file_sizes

PAGE = "/digits"
TRAINING = re.compile("^Training on ")
WASM = "**/pyodide.asm.wasm"


@pytest.fixture
def fails(page):
    """The page may complain: requests fail on purpose."""
    yield page
    page.complaints.clear()


@pytest.fixture(scope="module")
def site_with_cdn(site, tmp_path_factory):
    """A server that has no Pyodide of its own, so that pages take it from the CDN."""
    with running_server(tmp_path_factory.mktemp("cdn"), pyodide=None) as (_, address):
        yield address.rstrip("/")


def from_local_files(route):
    """The CDN's answer, from the files of the npm package."""
    path = pyodide_folder() / route.request.url.removeprefix(PYODIDE_CDN)
    route.fulfill(path=path, headers={"Access-Control-Allow-Origin": "*", "Content-Type": content_type(path)})


def content_type(path):
    return {".wasm": "application/wasm", ".mjs": "text/javascript"}.get(path.suffix, "application/octet-stream")


def test_a_recorded_run_is_shown_while_python_loads_and_how_many_bytes_are_there(page, site, screenshot):
    page.route(WASM, lambda route: None)
    page.goto(f"{site}{PAGE}")
    expect(page.get_by_text("Recorded run")).to_be_visible()
    expect(page.locator("#accuracy")).to_have_text(re.compile(r"^9\d\.\d%$"))
    expect(page.locator("#status")).to_have_text("Loading Python")
    folder = pyodide_folder()
    megabytes = (sum(file_sizes(folder).values()) + len(page_wheel(folder))) // 10**6  # and 0.1 of programs
    expect(page.get_by_text(re.compile(rf"^[1-6]\.\d of {megabytes}\.\d MB$"))).to_be_visible()
    expect(page.get_by_role("button", name="Pause")).to_be_disabled()
    screenshot(page, "digits-loading")


def test_the_live_run_takes_the_place_of_the_recorded_one(page, site):
    page.goto(f"{site}{PAGE}")
    expect(page.get_by_text("Recorded run")).to_be_visible()
    expect(page.locator("#status")).to_have_text(TRAINING, timeout=SLOW)
    expect(page.get_by_text("Recorded run")).to_have_count(0)
    expect(page.get_by_role("button", name="Pause")).to_be_enabled()


def test_a_page_whose_browser_does_not_name_an_adapter_loads_python(page, site):
    page.add_init_script("if (self.GPU) GPU.prototype.requestAdapter = () => new Promise(() => {})")  # not the worker's
    page.clock.install()
    page.goto(f"{site}{PAGE}")
    expect(page.locator("#status")).to_have_text("Looking for a GPU")
    page.clock.run_for(11_000)
    page.clock.resume()
    expect(page.locator("#status")).to_have_text(TRAINING, timeout=SLOW)


def test_a_request_that_hangs_ends_with_retry_which_loads_it(fails, site):
    page = fails
    page.clock.install()
    page.route(WASM, lambda route: None)
    page.goto(f"{site}{PAGE}")
    expect(page.get_by_text(re.compile(r"\d MB$"))).to_be_visible()
    page.clock.run_for(31_000)
    expect(page.locator("#status")).to_have_text("Loading Python stalled.")
    expect(page.get_by_role("alert")).to_contain_text("no progress for 30 seconds")

    page.unroute(WASM)
    page.clock.resume()
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("#status")).to_have_text(TRAINING, timeout=SLOW)
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("name", ["pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"])
def test_a_blocked_cdn_is_a_sentence_and_a_cause(fails, site_with_cdn, name):
    page = fails
    page.route(f"{PYODIDE_CDN}**", from_local_files)
    page.route(f"{PYODIDE_CDN}{name}", lambda route: route.abort("blockedbyclient"))
    page.goto(f"{site_with_cdn}{PAGE}")
    expect(page.locator("#status")).to_have_text("Python could not be loaded.", timeout=SLOW)
    notice = page.get_by_role("alert")
    expect(notice).to_contain_text("cdn.jsdelivr.net cannot be reached. You may be offline")
    expect(notice).to_contain_text(f"{PYODIDE_CDN}{name}")


def test_retry_loads_from_a_cdn_that_is_blocked_no_longer(fails, site_with_cdn):
    page = fails
    page.route(f"{PYODIDE_CDN}**", lambda route: route.abort())
    page.goto(f"{site_with_cdn}{PAGE}")
    retry = page.get_by_role("button", name="Retry")
    retry.click()
    expect(page.locator("#status")).to_have_text("Python could not be loaded.")
    page.unroute(f"{PYODIDE_CDN}**")
    page.route(f"{PYODIDE_CDN}**", from_local_files)
    retry.click()
    expect(page.locator("#status")).to_have_text(TRAINING, timeout=SLOW)


@pytest.mark.parametrize(
    ("address", "pattern"),
    [
        (PAGE, WASM),
        (PAGE, "**/wheel/**"),
        (PAGE, "**/programs/digits.py"),
        (PAGE, "**/python_stdlib.zip"),
        ("/race", "**/programs/race.py"),
        ("/gpt", "**/programs/writer.py"),
    ],
)
def test_an_answer_that_is_an_error_is_named(fails, site, address, pattern):
    page = fails
    page.route(pattern, lambda route: route.fulfill(status=HTTPStatus.SERVICE_UNAVAILABLE))
    page.goto(f"{site}{address}")
    expect(page.get_by_role("alert")).to_contain_text("answered 503 for a required file")
    expect(page.get_by_role("button", name="Retry")).to_be_enabled()


def test_images_that_cannot_be_loaded_are_said_to_be(fails, site):
    fails.route("**/data/digits.bin", lambda route: route.abort())
    fails.goto(f"{site}{PAGE}")
    expect(fails.locator("#status")).to_have_text(re.compile("^The images could not be loaded. The server cannot be"))
