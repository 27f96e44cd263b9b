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
    expect(race.locator("#status")).to_have_text(re.compile("^Finished: .* arrived first, at step"))
    arrivals = [int(arrived.removeprefix("step ")) for *_, arrived in standing(race).values()]
    assert arrivals == sorted(arrivals)
    assert all(arrived.startswith("step ") for *_, arrived in standing(race).values())
    assert picture(race) != before
    heights = {kind: height for kind, (_, _, height, _) in standing(race).items()}
    assert any(float(height) < 1e-4 for height in heights.values())  # lower than the chart draws
    legend = race.locator("#heights .u-legend .u-series:not(:first-child) .u-value")
    expect(legend).to_have_text([heights["sgd"], heights["adam"]])
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


def test_a_race_can_be_paused_and_continued(race):
    race.get_by_role("button", name="Start", exact=True).click()
    expect(race.locator("#steps")).not_to_have_text("0")
    race.get_by_role("button", name="Pause").click()
    expect(race.locator("#status")).to_have_text("Paused")
    race.get_by_role("button", name="Continue").click()
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


def marked_at_the_edge(race, kind):
    """How many pixels of the racer's colour are within 20 pixels of the map's edge: its number is, its track may be."""
    return race.locator("#map").evaluate(
        """(canvas, kind) => {
            const bib = document.querySelector(`.racer[data-kind=${kind}] .bib`);
            const color = getComputedStyle(bib).backgroundColor.match(/\\d+/g).map(Number);
            const { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            const margin = (20 * width) / canvas.clientWidth;
            let count = 0;
            for (let at = 0; at < data.length; at += 4) {
                const [x, y] = [(at / 4) % width, Math.floor(at / 4 / width)];
                const isInside = x > margin && y > margin && x < width - margin && y < height - margin;
                if (!isInside && color.every((value, channel) => Math.abs(value - data[at + channel]) < 3)) count++;
            }
            return count;
        }""",
        kind,
    )


def set_rate(race, kind, value):
    rate = race.locator(f".racer[data-kind={kind}] input[type=number]")
    rate.fill(value)
    rate.press("Tab")
    expect(race.locator("#status")).to_have_text("Ready")


def test_a_diverged_racer_is_out_in_the_table_on_the_map_and_in_the_verdict(race, screenshot):
    race.get_by_label("Landscape").select_option("Himmelblau")
    choose_racers(race, "sgd", "adam")
    set_rate(race, "sgd", "1e9")
    assert marked_at_the_edge(race, "sgd") == 0
    race.get_by_role("radio", name="16").check()
    race.get_by_role("button", name="Start", exact=True).click()
    status = race.locator("#status")
    expect(status).to_have_text(re.compile(r"^Finished: Adam arrived first, at step \d+; out: SGD$"))
    cells = standing(race)
    assert list(cells) == ["adam", "sgd"]
    assert cells["sgd"][3].startswith("out at step ")
    assert marked_at_the_edge(race, "sgd") > 50
    screenshot(race, "race-diverged")


def test_a_race_that_nobody_survives_ends(race):
    choose_racers(race, "sgd", "momentum", "adam")
    set_rate(race, "sgd", "1e9")
    set_rate(race, "momentum", "1e30")
    set_rate(race, "adam", "1e9")
    race.get_by_role("button", name="Start", exact=True).click()
    expect(race.locator("#status")).to_have_text("Finished: no racer arrived; all are out")
    assert re.fullmatch(r"\d\.\de\+\d\d", standing(race)["adam"][2])


@pytest.mark.parametrize(("field", "value"), [("Learning rate of SGD", "-1"), ("Start x", ""), ("Seed", "1.5")])
def test_a_value_that_cannot_be_raced_with_is_said_and_nothing_runs_until_it_is_corrected(race, field, value):
    address = race.url
    before = race.get_by_label(field).input_value()
    race.get_by_label(field).fill(value)
    race.get_by_label(field).press("Tab")
    status = race.locator("#status")
    expect(status).to_have_text(re.compile(f"^{field}: \\w"))
    for name in ["Start", "One step"]:
        expect(race.get_by_role("button", name=name, exact=True)).to_be_disabled()
    race.wait_for_timeout(500)  # the address is written 0.3 s after an event
    assert race.url == address
    race.get_by_label(field).fill(before)
    race.get_by_label(field).press("Tab")
    expect(status).to_have_text("Ready")


@pytest.mark.parametrize("rate", ["0", "1e300"])
def test_any_rate_leaves_every_button_alive(race, rate):
    choose_racers(race, "sgd")
    race.locator(".racer[data-kind=sgd] input[type=number]").fill(rate)
    race.get_by_role("button", name="Back to the start").click()
    expect(race.locator("#status")).not_to_have_attribute("data-state", "busy")
    set_rate(race, "sgd", "0.001")
    race.get_by_role("button", name="One step").click()
    expect(race.locator("#steps")).to_have_text("1")


def test_a_race_starts_again_after_its_device_is_lost(lose_device, race):
    lose_device()
    race.get_by_role("button", name="One step").click()
    expect(race.locator("#status")).to_contain_text("was lost")
    race.get_by_role("button", name="Back to the start").click()
    expect(race.locator("#status")).to_have_text("Ready")
    race.get_by_role("button", name="One step").click()
    expect(race.locator("#steps")).to_have_text("1")


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


def test_without_webgpu_a_recorded_race_is_shown_and_nothing_can_be_pressed_in_vain(page, site, fits):
    page.add_init_script("delete Navigator.prototype.gpu")
    page.goto(f"{site}/race")
    expect(page.locator(".notice[data-problem]")).to_contain_text("This browser does not support WebGPU")
    expect(page.locator("#steps")).to_have_text(re.compile(r"^[1-9]\d+$"))
    expect(page.locator("#standing tbody tr")).to_have_count(4)
    expect(page.locator(".recorded")).to_have_text("Recorded run")
    for name in ("play", "step", "reset", "surface"):
        expect(page.locator(f"#{name}")).to_be_disabled()
    fits(page, "race-recorded")
