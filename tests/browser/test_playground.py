"""The playground: every example runs, errors are shown where they are, programs stop, links carry programs."""

import ast
import hashlib
import io
import json
import re
import zipfile
from pathlib import Path

import pytest
from chromium import SLOW, pyodide_folder
from playwright.sync_api import expect
from requirements import missing

from optirs_web.demo_site.library import library_wheel, page_wheel

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "demo_site" / "programs" / "examples"


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
    expect(playground.locator("#status")).to_have_text("Failed at line 4")
    expect(playground.locator(".cm-lintRange-error")).to_have_text("x @ x")
    output = playground.locator("#output")
    expect(output).to_contain_text("ShapeError")
    expect(output).to_contain_text('"main.py", line 4')
    assert "optirs_web/" not in output.inner_text()
    screenshot(playground, "playground-error")


def test_the_library_runs_from_bytecode_once_it_is_compiled(playground):
    if page_wheel(pyodide_folder()) == library_wheel():
        missing("webgpu", "the library is not compiled: make pyodide")
    write(playground, "import optirs_web as ow\nprint(ow.optim.AdamW.__doc__[:5], ow.__spec__.origin)")
    run(playground)
    expect(playground.locator("#output")).to_contain_text("Adam")
    expect(playground.locator("#output")).to_contain_text("optirs_web/__init__.pyc")


def test_a_syntax_error_is_shown_at_its_line(playground):
    write(playground, "x = 1\ny = (2\n")
    run(playground)
    expect(playground.locator("#status")).to_have_text("Failed at line 2")
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
    playground.evaluate("localStorage.clear()")  # as another visitor, whose own program it is not
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


def test_the_readmes_ten_lines_run_as_they_stand(playground):
    (lines,) = re.findall(r"## A first model\n+```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    write(playground, lines)
    run(playground)
    expect(playground.locator("#output")).to_have_text(re.compile(r"^0\.\d+ <Device webgpu: .*>\n$"), timeout=SLOW)


def test_a_program_that_runs_right_after_another_was_stopped_is_left_alone(playground):
    write(playground, "print('here')\nwhile True:\n    pass\n")
    playground.get_by_role("button", name="Run", exact=True).click()
    expect(playground.locator("#output")).to_contain_text("here")
    playground.get_by_role("button", name="Stop").click()
    write(playground, "import asyncio\nfor _ in range(30):\n    await asyncio.sleep(0.1)\nprint('done')\n")
    playground.get_by_role("button", name="Run", exact=True).click(timeout=SLOW)  # once it can be clicked
    expect(playground.locator("#output")).to_have_text("done\n", timeout=SLOW)
    playground.complaints.clear()  # Pyodide writes a KeyboardInterrupt to the console


def test_a_loop_that_only_submits_is_stopped(playground):
    program = "import optirs_web as ow\nx = ow.ones((256, 256))\nstep = ow.compile(lambda: x @ x)\nprint('here')\n"
    write(playground, f"{program}while True:\n    step()\n")
    playground.get_by_role("button", name="Run", exact=True).click()
    expect(playground.locator("#output")).to_contain_text("here", timeout=SLOW)
    playground.get_by_role("button", name="Stop").click()
    expect(playground.get_by_role("button", name="Run", exact=True)).to_be_enabled(timeout=SLOW)
    playground.complaints.clear()  # Pyodide writes a KeyboardInterrupt to the console
    write(playground, "import optirs_web as ow\nprint(ow.ones((3,)).sum().item())")
    run(playground)
    expect(playground.locator("#output")).to_have_text("3.0\n", timeout=SLOW)


def test_changes_survive_a_reload_until_they_are_reset(playground, site):
    original = text(playground)
    reset = playground.get_by_role("button", name="Reset to example")
    expect(reset).to_be_hidden()
    write(playground, "print('changed')")
    expect(reset).to_be_visible()
    playground.goto(f"{site}/playground#memory")
    expect(playground.locator(".cm-line").first).to_have_text(re.compile("Watch GPU memory"))
    expect(reset).to_be_hidden()
    playground.goto("about:blank")
    playground.goto(f"{site}/playground")
    expect(playground.locator(".cm-content")).to_have_text("print('changed')")
    expect(playground.locator("#shared")).to_be_hidden()
    reset.click()
    assert text(playground) == original
    expect(reset).to_be_hidden()
    expect(playground).to_have_url(f"{site}/playground")  # the address follows a little later
    playground.reload()
    expect(playground.locator(".cm-line").first).to_have_text('"""Hello, tensor"""')


def test_what_was_changed_in_another_tab_is_not_lost(page, site):
    tabs = {"hello_tensor": page, "spirals": page.context.new_page()}
    for name, tab in tabs.items():
        tab.goto(f"{site}/playground#{name}")
        expect(tab.locator("#example")).to_have_value(name)
    for name, tab in tabs.items():
        write(tab, f"print('{name}, changed')")
    for name in tabs:
        page.goto("about:blank")
        page.goto(f"{site}/playground#{name}")
        expect(page.locator(".cm-line").first).to_have_text(f"print('{name}, changed')")


def test_after_its_device_is_lost_the_next_program_runs(lose_device, playground):
    program = "import asyncio\nimport optirs_web as ow\nx = ow.ones((3,))\nprint('here')\n"
    write(playground, f"{program}while True:\n    await asyncio.sleep(0.05)\n    x.sum().item()\n")
    playground.get_by_role("button", name="Run", exact=True).click()
    expect(playground.locator("#output")).to_contain_text("here", timeout=SLOW)
    lose_device()
    expect(playground.locator("#output")).to_contain_text("DeviceLostError", timeout=SLOW)
    expect(playground.get_by_role("button", name="Run", exact=True)).to_be_enabled(timeout=SLOW)
    write(playground, "import optirs_web as ow\nprint(ow.ones((3,)).sum().item())")
    run(playground)
    expect(playground.locator("#output")).to_have_text("3.0\n", timeout=SLOW)


def standing_for_numpy(page):
    """Where the distribution's packages are, a package in NumPy's place: what is tested is that an import loads it."""
    lock = json.loads((pyodide_folder() / "pyodide-lock.json").read_text("utf-8"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        wheel.writestr("numpy/__init__.py", "__version__ = 'in its place'\n")
        wheel.writestr("numpy-0.dist-info/METADATA", "Metadata-Version: 2.1\nName: numpy\nVersion: 0\n")
        wheel.writestr("numpy-0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("numpy-0.dist-info/RECORD", "")
    lock["packages"]["numpy"] |= {
        "file_name": "numpy-0-py3-none-any.whl",
        "sha256": hashlib.sha256(packed.getvalue()).hexdigest(),
    }
    headers = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}
    page.route("**/pyodide-lock.json", lambda route: route.fulfill(json=lock, headers=headers))
    page.route("**/numpy-0-*.whl", lambda route: route.fulfill(body=packed.getvalue(), headers=headers))


def test_numpy_is_loaded_when_a_program_imports_it(page, site):
    standing_for_numpy(page)
    page.goto(f"{site}/playground")
    expect(page.locator("#status")).to_have_text(re.compile("^Python 3"), timeout=SLOW)
    write(page, "import numpy as np\nprint(np.__version__)")
    run(page)
    expect(page.locator("#output")).to_have_text("in its place\n", timeout=SLOW)


def test_where_numpy_cannot_be_had_the_error_says_so(playground):
    playground.route("**/numpy-*.whl", lambda route: route.abort())
    write(playground, "import numpy as np")
    run(playground)
    output = playground.locator("#output")
    expect(output).to_contain_text("The module 'numpy' is included in the Pyodide distribution", timeout=SLOW)
    expect(output).to_contain_text("this computer may be offline")
    expect(output).to_contain_text("OPTIRS_PYODIDE_DIST")
    assert "micropip" not in output.inner_text()
    expect(playground.locator("#status")).to_have_text("Failed at line 1")
    playground.complaints.clear()  # the request that failed
