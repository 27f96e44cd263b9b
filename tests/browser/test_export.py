"""The site as files of a plain file server, under a prefix: what the pages do without an API."""

import json
import re
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from chromium import SLOW, chromium_context
from exported_site import PREFIX, served_export
from playwright.sync_api import Error, expect

from optirs_web.demo_site.addresses import PAGES
from optirs_web.demo_site.shader_kernels import Name, translation


@pytest.fixture(scope="module")
def exported(browser, tmp_path_factory):
    """The address of the exported site."""
    with served_export(tmp_path_factory.mktemp("export")) as url:
        yield url


def wait_for_isolation(page):
    """Wait for the page's second load, through the service worker; a policy without eval leaves only looking again."""
    for _ in range(300):
        with suppress(Error):  # the first page is gone while it is looked at
            if page.evaluate("self.crossOriginIsolated"):
                return page.wait_for_load_state()
        page.wait_for_timeout(100)
    raise AssertionError("the page is not isolated")


@pytest.fixture
def open_page(page, exported):
    """`open_page("race")`: the page, isolated and no longer busy. It requests nothing above the prefix."""
    requested = []
    page.on("request", lambda request: requested.append(urlsplit(request.url)))

    def open_page(name):
        page.goto(f"{exported}/{'' if name == 'home' else f'{name}.html'}")
        wait_for_isolation(page)
        for status in page.locator("[role=status][data-state]").all():
            expect(status).not_to_have_attribute("data-state", "busy", timeout=SLOW)
            expect(status).not_to_have_attribute("data-state", "failed")
        return page

    yield open_page
    assert [url for url in requested if url.scheme == "http" and not url.path.startswith(f"{PREFIX}/")] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_works_as_a_file(open_page, name):
    page = open_page(name)
    current = page.locator(".site-nav [aria-current=page]")
    expect(current).to_have_attribute("href", re.compile(r"^(\./)+$" if name == "home" else rf"{name}\.html$"))
    with page.expect_navigation():
        page.locator(".site-nav a").nth(-1 if name != "checkpoints" else 0).click()
    expect(page.locator("h1")).to_be_visible()


def test_a_program_is_interrupted_since_the_page_is_isolated(open_page):
    page = open_page("playground")
    page.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text("kept = 1\nwhile True: pass")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#status")).to_have_attribute("data-state", "running")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#status")).to_have_text("Stopped")
    expect(page.locator("#output")).not_to_contain_text("restarting")
    page.complaints.clear()  # Pyodide writes a KeyboardInterrupt to the console


def test_a_run_is_saved_in_this_browser(open_page, page):
    open_page("checkpoints")
    page.locator("#train").click()
    expect(page.locator("#status")).to_have_attribute("data-state", "done", timeout=SLOW)
    page.get_by_label("Run name").fill("mine")
    page.locator("#save").click()
    row = page.locator("tr[data-run=mine]")
    expect(row).to_contain_text("AdamW")
    expect(row.locator("td.number").first).to_have_text("5")
    expect(page.locator("#commands")).to_contain_text(
        "mv ~/Downloads/mine.safetensors runs/mine/checkpoint.safetensors"
    )
    expect(page.locator("#commands")).not_to_contain_text("--token")

    open_page("checkpoints")
    expect(page.locator("#epoch")).to_have_text("0")
    row.get_by_role("button", name=re.compile("^(Load|Open|Continue)")).first.click()
    expect(page.locator("#epoch")).to_have_text("5")
    row.get_by_role("button", name=re.compile("^Delete")).click()
    expect(row).to_have_count(0)
    page.reload()
    expect(page.locator("#runs")).to_contain_text("None yet")


def test_after_a_visitor_has_cleared_what_was_saved_a_run_is_saved_again(open_page, page, exported):
    page = open_page("checkpoints")
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("#runs")).to_have_text("None yet")
    clear = {"origin": exported.removesuffix(PREFIX), "storageTypes": "indexeddb"}
    page.context.new_cdp_session(page).send("Storage.clearDataForOrigin", clear)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#status")).to_have_text(re.compile("^Saved “"))


def test_a_benchmark_result_is_saved_in_this_browser(open_page, page):
    open_page("bench")
    page.get_by_role("button", name="Run all").click()
    expect(page.locator("#host th").first).to_be_visible(timeout=SLOW)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#status")).to_have_text("Stopped", timeout=SLOW)
    page.locator("#post").click()
    expect(page.locator("#saved td.number")).to_have_count(3)
    page.reload()
    expect(page.locator("#saved td.number")).to_have_count(3)


def test_shaders_have_their_texts(open_page, exported):
    page = open_page("shaders")
    page.locator("#right-target").select_option("cuda")
    text = translation(Name("optimizers", "adam", "update", "cuda")).text
    expect(page.locator("#right-code")).to_have_text(text)
    file = page.request.get(f"{exported}/data/shaders/optimizers/adam/update/cuda.json")
    assert file.json()["text"] == text


def test_without_a_service_worker_a_page_works_too(browser, exported):
    with chromium_context(browser, service_workers="block") as page:
        page.goto(f"{exported}/")
        expect(page.locator("#status")).to_have_attribute("data-state", "running", timeout=SLOW)
        assert page.evaluate("self.crossOriginIsolated") is False


def test_a_page_states_its_policy_and_keeps_to_it(page, exported):
    page.goto(f"{exported}/digits.html")
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert "'unsafe-inline'" not in policy
    page.evaluate("document.head.append(Object.assign(document.createElement('script'), { text: 'self.inlined = 1' }))")
    assert page.evaluate("self.inlined") is None
    page.complaints.clear()


def test_what_was_exported_is_listed(exported, page):
    listed = page.request.get(f"{exported}/export.json").json()["files"]
    assert {"index.html", "404.html", "isolation.js", "_headers", "site.json"} <= set(listed)
    assert json.loads(page.request.get(f"{exported}/site.json").text())["api"] is False
