"""The race: racers run, everybody can say where from, and the numbers are the native ones."""

import asyncio
import importlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import expect

PROGRAMS = Path(__file__).parent.parent.parent / "demo_site" / "programs"


@pytest.fixture
def race(page, site):
    """The page, ready to start."""
    page.goto(f"{site}/race")
    expect(page.locator("#status")).to_have_text("Ready")
    return page


def choose_racers(race, *kinds):
    for row in race.locator(".racer").all():
        row.get_by_role("checkbox").set_checked(row.get_attribute("data-kind") in kinds)
    expect(race.locator("#standing tbody tr")).to_have_count(len(kinds))
    expect(race.locator("#status")).to_have_text("Ready")


def standing(race):
    """Each racer's cells, as (x, y, height, arrived), once the page has drawn."""
    rows = race.evaluate(
        """async () => {
            for (let frames = 0; frames < 2; frames++) await new Promise(requestAnimationFrame);
            const rows = [...document.querySelectorAll("#standing tbody tr")];
            return rows.map((row) => [row.dataset.kind, [...row.querySelectorAll("td")].map((one) => one.innerText)]);
        }"""
    )
    return {kind: tuple(cells) for kind, cells in rows}


def picture(race):
    return race.locator("#map").evaluate("canvas => canvas.toDataURL()")


def test_racers_arrive_and_the_race_ends(race, screenshot):
    race.get_by_label("Landscape").select_option("Himmelblau")
    expect(race.locator("#formula")).to_contain_text("11")
    expect(race.locator("#status")).to_have_text("Ready")
    choose_racers(race, "sgd", "adam")
    before = picture(race)
    race.get_by_role("radio", name="16").check()
    race.get_by_role("button", name="Start", exact=True).click()
    expect(race.locator("#status")).to_have_text(re.compile("^Finished: .* arrives first, at step"))
    arrivals = [int(arrived.removeprefix("step ")) for *_, arrived in standing(race).values()]
    assert arrivals == sorted(arrivals)
    assert all(arrived.startswith("step ") for *_, arrived in standing(race).values())
    assert picture(race) != before
    screenshot(race, "race")
    race.get_by_role("button", name="Back to the start").click()
    expect(race.locator("#steps")).to_have_text("0")


def test_the_lowest_racer_stands_on_top(race):
    race.get_by_role("button", name="Start", exact=True).click()
    expect(race.locator("#steps")).not_to_have_text("0")
    expect(race.locator("#status")).to_have_text("Running")
    race.get_by_role("button", name="Pause").click()
    expect(race.locator("#status")).to_have_text("Paused")
    race.get_by_role("button", name="One step").click()
    expect(race.locator("#status")).to_have_text("Paused")
    heights = [float(height) for _, _, height, _ in standing(race).values()]
    assert heights == sorted(heights)


def test_a_race_can_be_paused_and_goes_on(race):
    race.get_by_role("button", name="Start", exact=True).click()
    expect(race.locator("#steps")).not_to_have_text("0")
    race.get_by_role("button", name="Pause").click()
    expect(race.locator("#status")).to_have_text("Paused")
    race.get_by_role("button", name="Go on").click()
    expect(race.locator("#status")).to_have_text("Running")


def test_a_click_on_the_map_chooses_the_start(race):
    box = race.locator("#map").bounding_box()
    race.locator("#map").click(position={"x": box["width"] * 0.75, "y": box["height"] * 0.25})
    expect(race.get_by_label("Start x")).to_have_value(re.compile(r"^(0\.9[89]|1\.0)"))
    expect(race.get_by_label("Start y")).to_have_value(re.compile(r"^(1\.9[89]|2\.0)"))
    expect(race.locator("#standing tbody td").first).to_have_text(re.compile(r"^(0\.9[89]|1\.0)"))


def test_the_keyboard_chooses_the_start(race):
    race.get_by_label("Start x").fill("0.5")
    race.get_by_label("Start x").press("Tab")
    expect(race.locator("#standing tbody td").first).to_have_text("0.500")


def test_racers_are_where_the_native_ones_are(race, monkeypatch, open_device):
    monkeypatch.syspath_prepend(str(PROGRAMS))
    native = importlib.import_module("race")
    choose_racers(race, "sgd", "nesterov", "adam", "amsgrad")
    for steps in range(1, 4):
        race.get_by_role("button", name="One step").click()
        expect(race.locator("#steps")).to_have_text(str(steps))
    kinds = list(standing(race))
    surface = native.SURFACES["rosenbrock"]
    racers = [{"kind": kind, "lr": surface.rates[kind]} for kind in kinds]
    running = native.Race(open_device("cpu"), "rosenbrock", racers, surface.start)
    with ThreadPoolExecutor(1) as thread:  # this one has Playwright's event loop
        track = thread.submit(lambda: asyncio.run(running.frame(3))).result()
    for kind, (x, y, _) in zip(kinds, track[-1], strict=True):
        shown_x, shown_y, *_ = standing(race)[kind]
        assert (float(shown_x), float(shown_y)) == pytest.approx((x, y), abs=2e-3)
