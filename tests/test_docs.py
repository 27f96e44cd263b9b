"""What the documentation shows runs and gives what it says: docstrings of every module, and the README."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import optirs_web

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


def test_the_readmes_python_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
