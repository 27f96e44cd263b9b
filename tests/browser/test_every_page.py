"""Every page that computes is shown without a GPU too, and reports why Python could not be loaded."""

import pytest
from playwright.sync_api import expect

# Of each page, what there is to see and to read without a GPU.
PAGES = {
    "digits": "#accuracy",
    "bench": "#saved",
    "check": "#limits",
    "checkpoints": "#commands",
}


@pytest.mark.parametrize("name", PAGES)
def test_without_webgpu_a_page_is_there_and_says_what_to_do(page, site, name, screenshot):
    page.add_init_script("delete Navigator.prototype.gpu")
    page.goto(f"{site}/{name}")
    expect(page.locator(".notice")).to_contain_text("This browser does not support WebGPU")
    expect(page.locator("#status")).to_contain_text("no GPU available")
    expect(page.locator(PAGES[name])).to_be_visible()
    screenshot(page, f"{name}-without-webgpu")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_without_python_says_why_and_offers_another_try(page, site, name):
    page.route("**/pyodide.asm.wasm", lambda route: route.abort())
    page.goto(f"{site}/{name}")
    expect(page.locator("#status")).to_have_text("Python could not be loaded.")
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    expect(page.get_by_role("button", name="Retry")).to_be_enabled()
    page.complaints.clear()
