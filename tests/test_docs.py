"""The examples of the documentation run with the results shown: docstrings of every module, the README and `docs`.

Every public name has an explanation and, but for those that are listed here, an example; links lead somewhere.
"""

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
    *(
        module.name
        for module in pkgutil.walk_packages(optirs_web.__path__, "optirs_web.")
        if "shaders" not in module.name
    ),
]
# These import Pyodide's modules, or a rival of the benchmarks.
OF_OTHERS = ("optirs_web.browser.", "optirs_web.benchmarks.torch_models", "optirs_web.benchmarks.libraries.torch_",
             "optirs_web.benchmarks.libraries.of_")  # fmt: skip
MODULES = [module for module in MODULES if not module.startswith(OF_OTHERS)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def public_names(module):
    """The public functions and classes of a module, and of those among its public names, by their names."""
    for name in module.__all__:
        member = getattr(module, name)
        if inspect.ismodule(member):
            yield from ((f"{name}.{inner}", value) for inner, value in public_names(member))
        elif inspect.isclass(member) or inspect.isroutine(member):
            yield name, member


PUBLIC = {**dict(public_names(optirs_web)), **{f"ops.{name}": one for name, one in public_names(optirs_web.ops)}}

# What users are given and do not make, what the bases of classes are, and what the format of files is made of.
WITHOUT_EXAMPLE = {
    "AdapterInfo", "CustomOperation", "Device", "MemoryStats", "Stats", "benchmarks.Figure", "benchmarks.Result",
    "close_device", "datasets.Digits",
    "optim.Optimizer", "optim.Options", "optim.averaging.Average", "optim.lr_scheduler.LRScheduler",
    "optim.projections.Projection", "optim.transforms.Transform", "ops.add_into", "ops.in_order",
    "interop.safetensors.Entry", "interop.safetensors.data_of", "interop.safetensors.entry_of",
    "interop.safetensors.name_of", "interop.safetensors.parts", "interop.safetensors.save_file",
    "interop.safetensors.with_digest",
}  # fmt: skip
# These need a package that may not be there, or a file, and have theirs in docs or beside another name.
EXAMPLE_ELSEWHERE = {"interop.onnx.Graph", "interop.onnx.load", "interop.onnx.save", "interop.torch.to_torch"}
EXAMPLE_ELSEWHERE |= {"interop.jax.Step", "interop.jax.export", "interop.jax.load", "load_checkpoint"}


def test_every_public_name_is_explained():
    assert [name for name, value in PUBLIC.items() if not inspect.getdoc(value)] == []


def test_every_public_name_has_an_example():
    """But for errors, and for twins, which have that of what they are twins of."""
    without = {name for name, value in PUBLIC.items() if ">>>" not in (inspect.getdoc(value) or "")}
    errors = {name for name, value in PUBLIC.items() if inspect.isclass(value) and issubclass(value, Exception)}
    twins = {name for name in PUBLIC if name.endswith("_async")}
    assert without - errors - twins == WITHOUT_EXAMPLE | EXAMPLE_ELSEWHERE


def test_every_argument_of_an_optimizer_is_explained():
    for name, class_ in all_optimizers().items():
        arguments = inspect.signature(class_).parameters.values()
        names = ["**" * (arg.kind is arg.VAR_KEYWORD) + arg.name for arg in arguments]
        explained = re.findall(r"^ {4}(\S+): ", inspect.getdoc(class_), re.MULTILINE)
        assert [arg for arg in explained if arg in names] == names, name


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


PAGES = [path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]]
IN_PAGES = {"docs/jupyterlite.md", "docs/package.md"}  # these await at the top level; tests/browser has the notebook
EXAMPLES = [page for page in PAGES if page not in IN_PAGES and blocks(page)]

# What else a page needs than the library, and what is true at its end.
NEEDS = {"docs/interop.md": ["torch", "onnx"]}
DEVICES = {"docs/performance.md": "vulkan", "docs/several_devices.md": "vulkan"}
AT_THE_END = {
    "docs/nn.md": "assert accuracy > 0.9",
    "docs/mixed_precision.md": "assert loss.item() < 0.2",
}


def test_there_are_pages_with_examples():
    assert {"README.md", "docs/setup.md", *NEEDS, *DEVICES, *AT_THE_END} <= set(EXAMPLES)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(example, marks=pytest.mark.needs(*NEEDS.get(example, ())))
        for example in EXAMPLES
        if example not in DEVICES
    ],
)
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


def rows_about_torch():
    """The cells of the table in docs/nn.md: the code in backticks of both columns."""
    text = (ROOT / "docs" / "nn.md").read_text("utf-8").partition("| torch | here |\n|---|---|\n")[2]
    return [[re.findall("`([^`]+)`", cell) for cell in row.split("|")[1:3]] for row in text.splitlines()]


def names_of_a_script_for_torch():
    """The names in the code of the table, with this library in the place of torch."""
    import numpy as np

    import optirs_web as ow

    x = ow.tensor(np.arange(8, dtype=np.float32).reshape(2, 4), "cpu")
    model = ow.nn.BatchNorm1d(4, device="cpu")
    model.register_buffer("mean", ow.zeros(4, "cpu"))
    return {
        "ow": ow, "torch": ow, "F": ow.nn.functional, "x": x, "y": ow.ones((4, 2), "cpu"), "mask": x > 2.0,
        "rows": ow.tensor([1, 0], "cpu"), "index": ow.tensor([[1], [0]], "cpu"), "array": x.numpy(),
        "p": ow.Parameter(ow.ones((4, 2), "cpu")), "model": model, "hook": lambda grad: None,
    }  # fmt: skip


@pytest.mark.parametrize("row", rows_about_torch(), ids=lambda row: row[0][0])
def test_the_page_about_modules_says_what_calls_of_torch_are_here(row):
    of_torch, here = row
    for code in here:
        exec(code, names_of_a_script_for_torch())
    for code in set(of_torch) - {"values, indices = x.max(dim=1)", "x += 1.0", "print(x)"}:  # which is no error here
        with pytest.raises((AttributeError, TypeError, ValueError, optirs_web.errors.UnsupportedError)):
            exec(code, names_of_a_script_for_torch())


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
                anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
                assert heading in anchors, f"{page}: {link}"


def test_commands_that_run_a_file_of_the_clone_name_its_environment():
    """In a fresh clone no other Python has the library. Only `make` and `pip install .` come before."""
    for path in [*(ROOT / page for page in PAGES), *(ROOT / "examples").glob("*.*")]:
        commands = re.findall(r"\S*python\s(?:benchmarks|examples)/\w+\.py", path.read_text("utf-8"))
        assert {command.split()[0].lstrip("`(") for command in commands} <= {".venv/bin/python"}, path
