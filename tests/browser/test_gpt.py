"""The writer: a GPT learns in the page, shows what it writes, and continues a visitor's words or learns them."""

import re

import pytest
from chromium import SLOW
from playwright.sync_api import expect

HOSTILE = "<img src=x onerror=alert(1)> & <script>alert(2)</script>\n" * 60


@pytest.fixture
def writer(open_training):
    """The page, with the model training."""
    return open_training("/gpt")


def test_it_learns_and_shows_what_it_writes_and_continues_a_visitors_words(writer, fits):
    expect(writer.locator("#held-out")).to_have_text(re.compile(r"^4\.\d"), timeout=SLOW)  # 73 characters: ln 73 = 4.29
    is_software = writer.locator("#size").input_value() == "small"  # the model with which it begins there
    expect(writer.locator("#software-note")).to_be_visible(visible=is_software)
    adapter = "a software adapter (SwiftShader), on your processor" if is_software else "your GPU"
    expect(writer.locator("#status")).to_have_text(f"Training on {adapter}")
    expect(writer.locator("#latest")).to_have_text(re.compile(r"\S"), timeout=SLOW)
    first = writer.locator("#latest").inner_text()
    writer.get_by_label("Your words").fill("Catherine was ")
    writer.get_by_role("button", name="Continue", exact=True).press("Enter")
    expect(writer.locator("#answer")).to_have_text(re.compile(r"\S\s*\S"), timeout=SLOW)
    expect(writer.locator("#answer-prompt")).to_have_text("Catherine was ")

    expect(writer.locator("#held-out")).to_have_text(re.compile(r"^(3\.[0-4]|[12]\.)\d*"), timeout=SLOW)
    assert writer.locator("#latest").inner_text() != first
    expect(writer.locator("#latest-note")).to_have_text(re.compile(r"^steps? .*, held-out loss \d\.\d+$"))
    for number in ("speed", "characters"):
        expect(writer.locator(f"#{number}")).to_have_text(re.compile(r"^[\d.,]+$"))

    writer.get_by_label("Your words").fill("naïve")
    writer.get_by_role("button", name="Continue", exact=True).click()
    expect(writer.locator("#prompt-error")).to_have_text("The training text does not contain these characters: ï")
    expect(writer.locator("#answer-prompt")).to_have_text("Catherine was ")
    fits(writer, "gpt-learned")


def test_knobs_act_and_a_text_of_ones_own_is_learned_as_it_is(writer):
    lines = writer.locator("#lines")
    writer.get_by_label("Optimizer").select_option("Lion")
    expect(lines).to_contain_text("ow.optim.Lion(", timeout=SLOW)
    writer.get_by_label("Learning rate").fill("-2")
    expect(lines).to_contain_text("lr=0.01", timeout=SLOW)
    writer.get_by_role("button", name="Pause").click()
    expect(writer.locator("#status")).to_have_text("Paused")

    learn, error = writer.get_by_role("button", name="Train on this text"), writer.locator("#text-error")
    writer.get_by_label("Paste text").fill("aaaaa")
    learn.click()
    expect(error).to_have_text("The text needs at least two distinct characters.", timeout=SLOW)
    expect(writer.locator("#status")).to_have_text("Paused")
    file = writer.get_by_label("Or choose a file")
    file.set_input_files({"name": "x.txt", "mimeType": "text/plain", "buffer": b"\xff\xfe\x00" * 1000})
    learn.click()
    expect(error).to_have_text("The file is not plain text in UTF-8.")
    file.set_input_files({"name": "x.txt", "mimeType": "text/plain", "buffer": b"a" * 4_000_001})
    learn.click()
    expect(error).to_have_text("The file has 4,000,001 bytes; at most 4,000,000 can be read.")

    file.set_input_files({"name": "x.txt", "mimeType": "text/plain", "buffer": HOSTILE.encode()})
    learn.click()
    expect(writer.locator("#text-note")).to_contain_text(
        "The model trains on your text: 3,420 characters", timeout=SLOW
    )
    expect(error).to_be_hidden()
    writer.get_by_label("Your words").fill("<img src=x onerror=alert(1)>")
    writer.get_by_role("button", name="Continue", exact=True).click()
    expect(writer.locator("#answer")).not_to_be_empty(timeout=SLOW)
    assert writer.locator("#stage img, #stage script").count() == 0
    writer.get_by_role("button", name="Use the book again").click()
    expect(writer.locator("#text-note")).to_contain_text("Northanger Abbey", timeout=SLOW)


def paste(writer, text):
    """Paste what Python's expression gives, as a browser does: the page may refuse it before it is in the field."""
    return writer.get_by_label("Paste text").evaluate(
        """(field, [piece, times]) => {
            const clipboardData = new DataTransfer();
            clipboardData.setData("text/plain", piece.repeat(times));
            const event = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
            return field.dispatchEvent(event);
        }""",
        text,
    )


def test_a_text_without_a_line_break_trains_and_a_huge_one_is_refused_as_it_is_pasted(writer):
    note, latest = writer.locator("#text-note"), writer.locator("#latest")
    writer.get_by_label("Paste text").fill("héllo 🎉 " * 300)
    writer.get_by_role("button", name="Train on this text").click()
    expect(note).to_contain_text("your text: 2,400 characters, 6 distinct", timeout=SLOW)
    expect(latest).to_have_text(re.compile(r"[hélo🎉]"), timeout=SLOW)
    assert not paste(writer, ["0123456789", 10_000_000])
    expect(writer.locator("#text-error")).to_contain_text("more than 1,000,000 characters")
    assert paste(writer, ["a text like any other", 1])
    expect(writer.locator("#text-error")).to_be_hidden()
    expect(writer.locator("#status")).to_have_attribute("data-state", "running")


def test_after_its_device_is_lost_every_button_starts_again_what_was_trained(lose_device, writer):
    writer.get_by_label("Paste text").fill("abcd" * 100)
    writer.get_by_role("button", name="Train on this text").click()
    expect(writer.locator("#text-note")).to_contain_text("your text", timeout=SLOW)
    for press in (
        lambda: writer.get_by_role("button", name="Restart").click(),
        lambda: writer.get_by_role("button", name="Start over").click(),
        lambda: writer.get_by_label("Optimizer").select_option("Lion"),
        lambda: writer.locator("#size").select_option("medium"),
    ):
        lose_device()
        expect(writer.locator("#status")).to_contain_text("was lost", timeout=SLOW)
        press()
        expect(writer.locator("#status")).to_have_attribute("data-state", "running", timeout=SLOW)
        expect(writer.locator("#text-note")).to_contain_text("your text: 400 characters", timeout=SLOW)
    expect(writer.locator("#size")).to_have_value("medium")


def test_after_its_device_is_lost_a_prompt_starts_it_again_and_is_continued(lose_device, writer):
    status = writer.locator("#status")
    lose_device()
    expect(status).to_contain_text("was lost", timeout=SLOW)
    writer.get_by_role("button", name="Continue", exact=True).click()
    expect(status).to_have_attribute("data-state", "running", timeout=SLOW)
    expect(writer.get_by_role("button", name="Pause")).to_be_enabled()
    expect(writer.locator("#answer-prompt")).to_have_text("The secret of the garden was ", timeout=SLOW)


def test_nothing_can_be_paused_before_python_is_there(page, site):
    page.route("**/pyodide.asm.wasm", lambda route: None)
    page.goto(f"{site}/gpt")
    expect(page.locator("#status")).to_have_text("Loading Python")
    expect(page.get_by_role("button", name="Pause")).to_be_disabled()


def test_without_webgpu_a_recorded_run_is_shown_and_nothing_can_be_pressed_in_vain(page, site, fits):
    page.add_init_script("delete Navigator.prototype.gpu")
    page.goto(f"{site}/gpt")
    expect(page.locator(".notice[data-problem]")).to_contain_text("This browser does not support WebGPU")
    expect(page.locator("#step")).to_have_text(re.compile(r"^\d+"))
    expect(page.locator("#latest")).to_have_text(re.compile(r"\S\s*\S"))
    expect(page.locator(".recorded")).to_have_text("Recorded run")
    for name in ("toggle", "reset", "size", "prompt", "text"):
        expect(page.locator(f"#{name}")).to_be_disabled()
    fits(page, "gpt-recorded")
