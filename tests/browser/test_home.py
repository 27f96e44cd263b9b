"""The first page: a model trains at once, visitors may change the program, and without a GPU it says why."""

import re

import pytest
from playwright.sync_api import expect

SLOW = 120_000  # milliseconds for what runs on a software GPU
TRAINING = re.compile("^Training on ")


@pytest.fixture
def home(page, site):
    """The page, with the model training."""
    page.goto(site)
    expect(page.locator("#device")).not_to_have_text("–", timeout=SLOW)
    expect(page.locator("#status")).to_have_text(TRAINING, timeout=SLOW)
    yield page
    # What takes long to stop is interrupted, which Pyodide writes to the console.
    page.complaints[:] = [complaint for complaint in page.complaints if "KeyboardInterrupt" not in complaint]


def run_program(page, source):
    page.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(source)
    page.keyboard.press("Control+Enter")


def is_painted(page, selector):
    """Return True if a canvas shows more than one colour."""
    return page.locator(selector).evaluate(
        "canvas => new Set(new Uint32Array("
        "canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size > 1"
    )


def test_a_model_trains_and_what_it_costs_is_shown(home, fits):
    expect(home.locator("#accuracy")).to_have_text(re.compile(r"^([89]\d\.\d|100\.0)%$"), timeout=SLOW)
    expect(home.locator("#submits")).to_have_text("1")
    expect(home.locator("#bytes")).to_have_text("0")
    expect(home.locator("#device")).not_to_have_text("–")
    assert is_painted(home, "#map")
    assert is_painted(home, "#chart canvas")
    fits(home, "home", in_view="#editor")  # the editor lays out what is in view


def test_an_edited_program_runs_and_can_be_restored(home):
    original = home.locator(".cm-content").inner_text()
    run_program(home, "print('six times seven is', 6 * 7)")
    expect(home.locator("#console")).to_have_text("six times seven is 42\n", timeout=SLOW)
    home.get_by_role("button", name="Restore").click()
    expect(home.locator("#status")).to_have_text(TRAINING)
    assert home.locator(".cm-content").inner_text() == original


@pytest.mark.parametrize("program", ["print('nothing trains')", "1 / 0"])
def test_figures_and_map_of_the_run_before_are_not_shown_as_those_of_the_next(home, program):
    corner = "canvas => [...canvas.getContext('2d').getImageData(2, 2, 1, 1).data]"
    expect(home.locator("#accuracy")).to_have_text(re.compile("%$"), timeout=SLOW)
    washed = home.locator("#map").evaluate(corner)
    run_program(home, program)
    expect(home.locator("#status")).to_have_text(re.compile("^(Finished|ZeroDivisionError.*)$"), timeout=SLOW)
    for figure in ["loss", "accuracy", "rate", "submits", "bytes"]:
        expect(home.locator(f"#{figure}")).to_have_text("–")
    assert home.locator("#map").evaluate(corner) != washed


def test_an_error_is_shown_at_its_line(home):
    run_program(home, "import optirs_web as ow\now.zeros((2, 3)) @ ow.zeros((2, 3))\n")
    expect(home.locator("#console")).to_contain_text("line 2, in <module>", timeout=SLOW)
    expect(home.locator("#console")).not_to_contain_text("_pyodide")
    expect(home.locator(".cm-lintRange-error")).to_have_text(re.compile(r"^ow\.zeros"))
    expect(home.locator("#status")).to_have_attribute("data-state", "failed")


def change(home, before, after):
    """Run the program of the page with a change, as a visitor who edits it."""
    program = "\n".join(home.locator(".cm-line").all_inner_texts())
    assert before in program
    run_program(home, program.replace(before, after))


def test_more_arms_are_trained_and_drawn(home):
    change(home, "arms = 3", "arms = 4")
    expect(home.locator("#status")).to_have_text(TRAINING)
    expect(home.locator("#loss")).to_have_text(re.compile(r"^\d"), timeout=SLOW)
    expect(home.locator("#accuracy")).to_have_text(re.compile(r"^([3-9]\d\.\d|100\.0)%$"), timeout=SLOW)
    assert is_painted(home, "#map")


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("arms=arms", "arms=4", "the model needs 4 outputs; it has 3"),
        ("lr=0.005", "lr=1e30", "The loss became NaN or infinite at step"),
        ("lr=0.005", "lr=-1", "Invalid learning rate: -1"),
        ("points=600", "points=0", "arms must be"),
        ("dense(2, 32)", "dense(2, 33)", "ShapeError"),
    ],
)
def test_what_cannot_be_trained_is_said_and_the_next_program_runs(home, before, after, sentence):
    change(home, before, after)
    status = home.locator("#status")
    expect(status).to_have_attribute("data-state", "failed", timeout=SLOW)
    expect(status).to_contain_text(sentence)
    home.get_by_role("button", name="Restore").click()
    expect(status).to_have_text(TRAINING, timeout=SLOW)


def test_after_its_device_is_lost_the_program_runs_again(lose_device, home):
    lose_device()
    expect(home.locator("#status")).to_contain_text("was lost", timeout=SLOW)
    home.locator("#toggle").click()
    expect(home.locator("#status")).to_have_text(TRAINING, timeout=SLOW)


def test_training_stops_and_starts_again(home):
    home.get_by_role("button", name="Stop").click()
    expect(home.locator("#status")).to_have_text("Stopped", timeout=SLOW)
    home.locator("#toggle").click()
    expect(home.locator("#status")).to_have_text(TRAINING)


def test_a_program_that_never_ends_is_interrupted(home):
    run_program(home, "print('begun')\nwhile True:\n    pass\n")
    expect(home.locator("#console")).to_have_text("begun\n", timeout=SLOW)
    home.get_by_role("button", name="Stop").click()
    expect(home.locator("#console")).to_contain_text("KeyboardInterrupt", timeout=SLOW)


def test_the_install_line_is_copied(page, site):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(site)
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "pip install . ./demo_site"


def test_without_webgpu_the_page_explains_itself_and_loads_no_python(page, site, screenshot):
    requested = []
    page.on("request", lambda request: requested.append(request.url))
    page.add_init_script("delete Navigator.prototype.gpu")
    page.goto(site)
    notice = page.locator(".notice", has_text="WebGPU")
    expect(notice).to_contain_text("This browser does not support WebGPU")
    expect(notice).to_contain_text("chrome://gpu")
    expect(page.locator(".cm-content")).to_contain_text("optirs_web")
    assert not [url for url in requested if "pyodide" in url]
    screenshot(page, "home-without-webgpu")


def test_a_chosen_theme_stays(page, site):
    page.emulate_media(color_scheme="light")
    page.goto(site)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    switch = page.get_by_role("button", name="Theme")
    for name in ["Theme: Light", "Theme: Dark"]:
        switch.click()
        expect(switch).to_have_accessible_name(name)
    assert page.evaluate(paper) != light
    page.reload()
    expect(switch).to_have_accessible_name("Theme: Dark")
    assert page.evaluate(paper) != light
