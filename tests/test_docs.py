"""What the documentation shows runs and gives what it says: docstrings of every module, and the README."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from processes import run_python

import optirs_web
from optirs_web.cli.optimizers import all_optimizers

ROOT = Path(__file__).parent.parent

MODULES = [
    "optirs_web",
    *(one.name for one in pkgutil.walk_packages(optirs_web.__path__, "optirs_web.") if "shaders" not in one.name),
]
IN_A_PAGE = ("optirs_web.browser.",)  # these import Pyodide's modules
MODULES = [one for one in MODULES if not one.startswith(IN_A_PAGE)]
PUBLIC_FUNCTIONS_WITH_EXAMPLES = 20


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(examples) >= PUBLIC_FUNCTIONS_WITH_EXAMPLES


def test_every_argument_of_an_optimizer_is_explained():
    for name, one in all_optimizers().items():
        arguments = inspect.signature(one).parameters.values()
        names = ["**" * (arg.kind is arg.VAR_KEYWORD) + arg.name for arg in arguments]
        explained = re.findall(r"^ {4}(\S+): ", inspect.getdoc(one), re.MULTILINE)
        assert [arg for arg in explained if arg in names] == names, name


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


PAGES = [one.relative_to(ROOT).as_posix() for one in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]]
IN_PAGES = {"docs/jupyterlite.md", "docs/package.md"}  # these await at the top level; tests/browser has the notebook
EXAMPLES = [one for one in PAGES if one not in IN_PAGES and blocks(one)]

# What else a page needs than the library, and what is true at its end.
NEEDS = {"docs/interop.md": ["torch", "onnx"]}
DEVICES = {"docs/performance.md": "vulkan", "docs/several_devices.md": "vulkan"}
AT_THE_END = {
    "docs/nn.md": "assert accuracy > 0.9",
    "docs/mixed_precision.md": "assert loss.item() < 0.2",
}


def test_there_are_pages_with_examples():
    assert {"README.md", "docs/setup.md", *NEEDS, *DEVICES, *AT_THE_END} <= set(EXAMPLES)


@pytest.mark.parametrize("page", [one for one in EXAMPLES if one not in DEVICES])
def test_the_examples_of_a_page_run(page, requires, tmp_path, monkeypatch):
    """One after the other, with the names of those before."""
    monkeypatch.chdir(tmp_path)
    for one in NEEDS.get(page, ()):
        requires(one)
        monkeypatch.setenv("OPTIRS_DEVICE", "cpu")
    names = {}
    for number, block in enumerate([*blocks(page), AT_THE_END.get(page, "")]):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


@pytest.mark.parametrize("page", DEVICES)
def test_the_examples_of_a_page_about_devices_run(page, open_device, tmp_path):
    """In a process of its own, since it closes devices and sets limits."""
    open_device(DEVICES[page])
    run_python(f"import os; os.chdir({str(tmp_path)!r})\n" + "\n".join(blocks(page)))


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, "CONTRIBUTING.md"]:
        text = (ROOT / page).read_text("utf-8")
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            target, _, heading = link.partition("#")
            if "://" in target:
                continue
            path = (ROOT / page).parent / target if target else ROOT / page
            assert path.exists(), f"{page}: {link}"
            if heading:
                headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
                anchors = [re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings]
                assert heading in anchors, f"{page}: {link}"
