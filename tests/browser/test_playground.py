"""The playground: every example runs, errors are shown where they are, programs stop, links carry programs."""

import ast
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

EXAMPLES = Path(__file__).parent.parent.parent / "demo_site" / "programs" / "examples"


@pytest.fixture
def playground(page, site):
    """The page with its Python started."""
    page.goto(f"{site}/playground")
    expect(page.locator("#status")).to_have_text(re.compile("^Python 3"))
    return page


def text(playground):
    """The program in the editor."""
    return "\n".join(playground.locator(".cm-line").all_inner_texts()).replace("\u200b", "")


def write(playground, program):
    """Replace the program, as someone who pastes."""
    editor = playground.locator(".cm-content")
    editor.press("ControlOrMeta+a")
    editor.press("Delete")
    playground.keyboard.insert_text(program)


def run(playground):
    playground.get_by_role("button", name="Run", exact=True).click()
    expect(playground.get_by_role("button", name="Stop")).to_be_disabled()


def test_the_examples_are_those_in_the_folder(page, site):
    page.goto(f"{site}/playground")
    offered = page.locator("#example option:not([hidden])")
    values = offered.evaluate_all("options => options.map(one => [one.value, one.textContent])")
    titles = {path.stem: ast.get_docstring(ast.parse(path.read_text("utf-8"))) for path in EXAMPLES.glob("*.py")}
    assert dict(values) == titles


def test_every_example_runs(playground, screenshot):
    for path in sorted(EXAMPLES.glob("*.py")):
        playground.get_by_label("Example").select_option(path.stem)  # which Run waits for
        run(playground)
        expect(playground.locator("#status"), path.stem).to_have_text(re.compile("^Finished"))
        expect(playground.locator("#output"), path.stem).to_have_text(re.compile(r"\S"))
        plots = "import plot" in path.read_text("utf-8")
        expect(playground.locator("#plot canvas"), path.stem).to_have_count(int(plots))
        screenshot(playground, f"playground-{path.stem}")


def test_run_waits_for_the_example_that_was_chosen(playground):
    held = []
    playground.route("**/programs/examples/dispatches.py", lambda route: held.append(route))
    playground.get_by_label("Example").select_option("dispatches")
    playground.get_by_role("button", name="Run", exact=True).click()
    expect(playground.locator("#status")).to_have_text("Running")
    held[0].continue_()
    expect(playground.locator("#status")).to_have_text(re.compile("^Finished"))
    expect(playground.locator("#output")).to_contain_text("dispatch")


def test_lines_are_broken_where_the_editor_ends(playground):
    playground.get_by_label("Example").select_option("spirals")
    for width in (1280, 390):
        playground.set_viewport_size({"width": width, "height": 844})
        expect(playground.locator(".cm-line").first).to_contain_text("spirals")
        assert playground.locator(".cm-scroller").evaluate("element => element.scrollWidth <= element.clientWidth")


def test_control_enter_runs_and_prints(playground):
    write(playground, "import optirs_web as ow\nprint(ow.tensor([1.0, 2.0]).sum().item(), ow.device().name)")
    playground.locator(".cm-content").press("Control+Enter")
    expect(playground.locator("#output")).to_have_text("3.0 webgpu\n")


def test_an_error_is_shown_at_its_line_without_the_librarys_frames(playground, screenshot):
    write(playground, "import optirs_web as ow\n\nx = ow.ones((2, 3))\nx @ x\n")
    run(playground)
    expect(playground.locator("#status")).to_have_text("Failed in line 4")
    expect(playground.locator(".cm-lintRange-error")).to_have_text("x @ x")
    output = playground.locator("#output")
    expect(output).to_contain_text("ShapeError")
    expect(output).to_contain_text('"main.py", line 4')
    assert "optirs_web/" not in output.inner_text()
    screenshot(playground, "playground-error")


def test_a_syntax_error_is_shown_at_its_line(playground):
    write(playground, "x = 1\ny = (2\n")
    run(playground)
    expect(playground.locator("#status")).to_have_text("Failed in line 2")
    expect(playground.locator("#output")).to_contain_text("SyntaxError")


@pytest.mark.parametrize(
    "program",
    [
        "print('here')\nwhile True:\n    pass\n",
        "print('here')\nwhile True:\n    try:\n        while True: pass\n    except KeyboardInterrupt: pass\n",
    ],
    ids=["heeds an interrupt", "does not"],
)
def test_a_program_that_never_ends_is_stopped(playground, program):
    write(playground, program)
    playground.get_by_role("button", name="Run", exact=True).click()
    expect(playground.locator("#output")).to_contain_text("here")
    playground.get_by_role("button", name="Stop").click()
    expect(playground.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    playground.complaints.clear()  # Pyodide writes a KeyboardInterrupt to the console
    write(playground, "print(6 * 7)")
    run(playground)
    expect(playground.locator("#output")).to_have_text("42\n")


def test_a_link_carries_a_program_and_does_not_run_it(playground, site):
    program = "print('ä, +/=&#', 1)  # 日本"
    write(playground, program)
    playground.get_by_role("button", name="Share").click()
    expect(playground).to_have_url(re.compile("#code="))
    link = playground.url
    playground.goto("about:blank")
    playground.goto(link)
    expect(playground.locator("#status")).to_have_text(re.compile("^Python 3"))
    assert text(playground) == program
    expect(playground.locator("#shared")).to_be_visible()
    expect(playground.locator("#output")).to_be_empty()


@pytest.mark.parametrize("hash_", ["code=%%%", "code=AAAA", "code=" + "A" * 20_000, "nothing-of-ours"])
def test_a_link_that_cannot_be_read_opens_the_first_example(page, site, hash_):
    page.goto(f"{site}/playground#{hash_}")
    expect(page.locator(".cm-line").first).to_have_text('"""Hello, tensor"""')


def test_a_link_to_an_example_opens_it(page, site):
    page.goto(f"{site}/playground#spirals")
    expect(page.locator(".cm-line").first).to_have_text('"""A network untangles two spirals"""')
