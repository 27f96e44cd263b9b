"""What the documentation shows runs and gives what it says: docstrings of every module, and the README."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

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


def test_the_readmes_python_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_examples_of_interop_run(requires, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPTIRS_DEVICE", "cpu")
    requires("torch")
    requires("onnx")
    page = (ROOT / "docs/interop.md").read_text()
    names = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL)):
        exec(compile(block, f"docs/interop.md, block {number}", "exec"), names)
    assert number >= 3
