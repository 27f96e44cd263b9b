"""The digits: trained to at least 97%, with settings that can be changed meanwhile, and recognition of drawn digits."""

import math
import re

import pytest
from chromium import ROOT, SLOW, chromium_context
from playwright.sync_api import expect

TRAINING = re.compile("^Training on ")
AT_LEAST_97 = re.compile(r"^(9[7-9]\.\d|100\.0)%$")

THREE = [
    *((0.47 + 0.24 * math.cos(math.radians(a)), 0.29 + 0.21 * math.sin(math.radians(a))) for a in range(-150, 91, 10)),
    *((0.47 + 0.27 * math.cos(math.radians(a)), 0.71 + 0.22 * math.sin(math.radians(a))) for a in range(-90, 151, 10)),
]


@pytest.fixture
def digits(open_training):
    """The page, with the network training."""
    return open_training("/digits")


def draw(page, stroke):
    """Draw with the mouse; the points are from 0 to 1."""
    pad = page.locator("#pad")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place)
    page.mouse.up()


def probability(page, digit):
    return page.get_by_role("row", name=re.compile(f"^{digit} ")).locator(".bar-value")


@pytest.mark.first
def test_the_digits_are_learned_and_a_drawn_one_is_recognised(digits, fits):
    expect(digits.locator("#accuracy")).to_have_text(AT_LEAST_97, timeout=SLOW)
    draw(digits, THREE)
    expect(digits.locator("#verdict-text")).to_have_text("This is a 3", timeout=SLOW)
    expect(probability(digits, 3)).to_have_text(re.compile(r"^(9\d|100)\.\d%$"))

    digits.get_by_role("button", name="Pause").click()
    expect(digits.locator("#status")).to_have_text("Paused")
    expect(digits.locator("#accuracy")).to_have_text(AT_LEAST_97)
    misread = int(digits.locator("#wrong-count").inner_text().removesuffix(" of 360"))
    expect(digits.locator("#wrong li")).to_have_count(misread)
    fits(digits, "digits")


AS_IT_STARTS_OVER = """
() => {
  document.getElementById("reset").click();
  return ["accuracy", "epoch", "wrong-count", "wrong"].map((id) => document.getElementById(id).textContent);
}
"""


def test_a_run_that_begins_has_misread_nothing_yet(digits):
    expect(digits.locator("#epoch")).to_have_text(re.compile("/25$"), timeout=SLOW)
    expect(digits.locator("#wrong li").first).to_be_visible()
    assert digits.evaluate(AS_IT_STARTS_OVER) == ["–", "–", "", ""]
    expect(digits.locator("#wrong li").first).to_be_visible(timeout=SLOW)  # after the next epoch


def test_knobs_act_while_it_runs(digits):
    rate = digits.locator("#rate-now")
    digits.get_by_label("Optimizer").select_option("SGD")
    expect(digits.locator("#lr-value")).to_have_text("0.1", timeout=SLOW)
    digits.get_by_label("Schedule").select_option("constant")
    digits.get_by_label("Learning rate").fill("-2")
    expect(digits.locator("#lr-value")).to_have_text("0.01")
    expect(rate).to_have_text("0.01", timeout=SLOW)

    digits.get_by_role("button", name="Pause").click()
    digits.get_by_role("button", name="Continue").click()
    expect(digits.locator("#epoch")).not_to_have_text("–", timeout=SLOW)
    digits.get_by_role("button", name="Start over").click()
    expect(digits.locator("#epoch")).to_have_text("–")
    expect(digits.locator("#epoch")).to_have_text(re.compile(r"^\d+/25$"), timeout=SLOW)
    expect(rate).to_have_text("0.01")


def test_a_loss_that_is_not_a_number_stops_with_a_sentence(digits):
    digits.get_by_label("Optimizer").select_option("SGD")
    expect(digits.locator("#lr-value")).to_have_text("0.1", timeout=SLOW)
    digits.get_by_label("Learning rate").evaluate(
        "slider => { slider.max = slider.value = 30; slider.dispatchEvent(new Event('input')) }"
    )
    sentence = re.compile("^The loss became NaN or infinite in epoch .*: learning rate .* is too large for SGD")
    expect(digits.locator("#status")).to_have_text(sentence, timeout=SLOW)
    expect(digits.get_by_role("button", name="Start over")).to_be_enabled()


def test_after_an_error_in_the_program_its_buttons_start_it_again(page, site):
    program = (ROOT / "demo_site/programs/digits.py").read_text("utf-8")
    broken = program.replace("self.is_paused = True\n        elif", "raise KeyError('newline')\n        elif")
    assert broken != program
    page.route("**/programs/digits.py", lambda route: route.fulfill(body=broken))
    page.goto(f"{site}/digits")
    expect(page.locator("#status")).to_have_text(TRAINING, timeout=SLOW)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#status")).to_have_text("Stopped by an error: KeyError: 'newline'", timeout=SLOW)
    page.complaints.clear()  # the traceback
    page.get_by_role("button", name="Restart").click()
    expect(page.locator("#status")).to_have_text(TRAINING, timeout=SLOW)
    expect(page.locator("#epoch")).not_to_have_text("–", timeout=SLOW)


def test_the_adapter_is_called_what_it_is(digits):
    expect(digits.locator("#status")).to_have_text("Training on a software adapter (SwiftShader), on your processor")


def test_without_webgpu_there_is_the_recorded_run_and_what_to_do(page, site, fits):
    requested = []
    page.on("request", lambda request: requested.append(request.url))
    page.add_init_script("delete Navigator.prototype.gpu")
    page.goto(f"{site}/digits")
    expect(page.locator(".notice")).to_contain_text("This browser does not support WebGPU")
    expect(page.get_by_text("Recorded run")).to_be_visible()
    expect(page.locator("#epoch")).to_have_text("25/25")
    expect(page.locator("#accuracy")).to_have_text(AT_LEAST_97)
    expect(page.locator("#status")).to_have_text("Not training: no GPU available")
    expect(page.locator("#wrong li").first).to_be_visible()
    assert not [url for url in requested if "pyodide" in url]
    fits(page, "digits-without-webgpu")


def test_common_optimizers_come_first_and_the_others_from_a_to_z(digits):
    common, others = digits.locator("#optimizer optgroup").all()
    assert common.locator("option").all_inner_texts()[:3] == ["AdamW", "Adam", "SGD"]
    names = others.locator("option").all_inner_texts()
    assert names == sorted(names, key=str.lower)
    assert len(names) > 20


def test_without_a_pointer_a_test_image_is_taken(digits):
    expect(digits.locator("#accuracy")).not_to_have_text("–", timeout=SLOW)
    digits.get_by_role("button", name="a 7", exact=True).press("Enter")
    expect(digits.locator("#verdict-text")).to_have_text(re.compile(" a 7$"), timeout=SLOW)
    digits.get_by_role("button", name="Clear").press("Enter")
    expect(digits.locator("#verdict-text")).to_have_text(re.compile("^Write a digit"), timeout=SLOW)


def test_a_finger_draws_and_undo_takes_a_stroke_back(browser, site):
    with chromium_context(browser, has_touch=True) as page:
        page.goto(f"{site}/digits")
        pad, undo = page.locator("#pad"), page.get_by_role("button", name="Undo")
        pad.tap()
        expect(undo).to_be_enabled()
        pad.tap(position={"x": 40, "y": 40})
        undo.tap()
        expect(undo).to_be_enabled()
        undo.tap()
        expect(undo).to_be_disabled()
