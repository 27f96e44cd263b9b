"""The page that checks a GPU: it measures, says what is software, and gives a card and a JSON of what it shows."""

import io
import json
import re
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

SLOW = 240_000


@pytest.fixture
def checked(page, site):
    """The page after a check."""
    page.goto(f"{site}/check")
    expect(page.locator("#status")).to_have_text(re.compile("^Ready"), timeout=SLOW)
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.locator("#status")).to_have_attribute("data-state", "done", timeout=SLOW)
    return page


def saved(page, button):
    """The content of what a button saves."""
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()
    return Path(download.value.path()).read_bytes()


def test_a_check_is_truthful_about_software_and_saved_as_a_card_and_as_json(checked, screenshot):
    report = json.loads(saved(checked, "Download JSON"))
    assert report["device"]["software"]
    assert [entry["name"] for entry in report["products"]] == ["matmul-128", "matmul-512"]
    best = max(entry["rate"]["median"] for entry in report["products"])
    assert report["share"] == pytest.approx(best / report["peak"])
    assert report["share"] > 0
    assert report["copy"]["rate"]["min"] <= report["copy"]["rate"]["median"]
    assert report["family"] == ("quads" if "subgroups" in report["features"] else "tiles")
    assert report["limits"]["maxBufferSize"] >= 1 << 28
    expect(checked.locator("#verdict")).to_contain_text("No GPU was measured")
    expect(checked.locator("#best")).to_contain_text("GFLOP/s")
    expect(checked.locator("#products tr")).to_have_count(3)
    card = Image.open(io.BytesIO(saved(checked, "Save card")))
    assert card.format == "PNG"
    assert min(card.size) > 700
    assert len(card.convert("RGB").quantize(64).getcolors()) > 8  # something is drawn
    screenshot(checked, "check")


FAST = """
    const { dispatchWorkgroups } = GPUComputePassEncoder.prototype;
    self.dispatches = [];
    GPUComputePassEncoder.prototype.dispatchWorkgroups = function () {
      self.dispatches.push(this);
      dispatchWorkgroups.call(this, 1);
    };
"""


def test_on_a_fast_gpu_a_round_has_as_many_dispatches_as_it_takes_to_measure_the_peak(page, site):
    page.add_init_script(FAST)
    page.goto(f"{site}/check")
    expect(page.locator("#status")).to_have_text(re.compile("^Ready"), timeout=SLOW)
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.locator("#peak")).to_contain_text("GFLOP/s", timeout=SLOW)
    assert page.evaluate("dispatches.filter((pass) => pass === dispatches.at(-1)).length") > 1


def test_what_the_adapter_offers_is_there_before_python_is(page, site):
    page.route("**/pyodide.asm.wasm", lambda route: route.abort())
    page.goto(f"{site}/check")
    expect(page.locator("#limits tr")).to_have_count(6)
    expect(page.locator("#features td").first).to_have_text(re.compile("^(yes|no)$"))
    page.complaints.clear()
