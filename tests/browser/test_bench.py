"""The benchmarks run in the page, stop on request, and are saved."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect


@pytest.fixture
def measured(page, site):
    """The page after the first benchmarks, stopped."""
    page.goto(f"{site}/bench")
    expect(page.locator("#status")).to_have_text(re.compile("^Ready"))
    page.get_by_label("Rounds").select_option("5")
    page.get_by_role("button", name="Run all").click()
    expect(page.locator("#host th")).to_have_text(["AdamW, 20 × 1,024"])
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#status")).to_have_text("Stopped")
    return page


def test_results_are_drawn_downloaded_and_saved(measured, site, screenshot):
    expect(measured.locator("#adamw-time .bar-spread").first).to_be_attached()
    counts = measured.locator("#host tr").first.locator("td").all_inner_texts()[1:]
    assert counts == ["2", "1", "0"]  # dispatches, submits, bind groups
    with measured.expect_download() as download:
        measured.get_by_role("button", name="Download JSON").click()
    report = json.loads(Path(download.value.path()).read_text("utf-8"))
    assert [entry["name"] for entry in report["results"]][:2] == ["copy", "adamw-20x1024"]
    for entry in report["results"]:
        spread = entry["milliseconds"]
        assert 0 < spread["min"] <= spread["q1"] <= spread["median"] <= spread["q3"] <= spread["max"]
        assert 2 <= len(entry["samples"]) <= 5
    measured.get_by_role("button", name="Save").click()
    expect(measured.locator("#saved tr").first).to_contain_text(report["device"])
    saved = measured.request.get(f"{site}/api/bench").json()
    assert saved[0]["result"]["results"] == report["results"]
    screenshot(measured, "bench")


@pytest.mark.parametrize("device", [{"name": "a"}, ["a"], 5, None])
def test_a_result_of_another_form_is_listed_without_what_it_lacks(page, site, device):
    row = {
        "created": "2026-01-01T00:00:00Z",
        "result": {"device": device, "results": [None, {"name": "copy", "rate": 1}]},
    }
    page.route("**/api/bench", lambda route: route.fulfill(json=[row]))
    page.goto(f"{site}/bench")
    expect(page.locator("#saved td")).to_have_text([re.compile("2026"), "unknown", "–", "–", "–"])
