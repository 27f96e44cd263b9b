"""The library's wheels for browsers: small, with the code of the sources, and itself again at the first import."""

import ast
import dis
import inspect
import io
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import types
import zipfile
from pathlib import Path

import pytest
from wheels import FOLDERS, ROOT

import optirs_web as ow
from optirs_web.demo_site.rename import rename
from optirs_web.demo_site.shorten import shorten
from optirs_web.demo_site.wheel import library_wheel, more_wheel, more_wheel_name, pack, wheel_name

LARGEST = 240_000  # bytes: a page downloads it before it can train
LEFT_OUT = {"benchmarks", "cli", "datasets", "demo_site", "examples", "training", "translations", "__main__.py"}
LEFT_OUT |= {"choosing", "forks.py", "probe.wgsl"}
NATIVE = ("c_", "cuda", "jax", "numba_", "nvrtc", "opencl", "print_c", "wgpu", "xla")

# Instructions that depend on where lines begin, and on how variables that functions share are sorted.
LAYOUT = {*dis.hasjrel, *dis.hasjabs, *(dis.opmap[name] for name in ("NOP", "MAKE_CELL", "LOAD_CLOSURE"))}
VARIABLES = {*dis.haslocal, *dis.hasfree}
SUFFIXES = {".js", ".py", ".wgsl"}
GLOBALS = {dis.opmap[f"{what}_{where}"] for what in ("LOAD", "STORE", "DELETE") for where in ("GLOBAL", "NAME")}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The folder that a page has the library in."""
    return extracted(tmp_path_factory.mktemp("page"), library_wheel())


@pytest.fixture(scope="module")
def page_with_more(tmp_path_factory):
    """The folder that a page has both wheels in."""
    return extracted(tmp_path_factory.mktemp("more"), library_wheel(), more_wheel())


def extracted(folder, *wheels):
    for wheel in wheels:
        zipfile.ZipFile(io.BytesIO(wheel)).extractall(folder)
    return folder


def run(folder, program):
    """Run Python with the content of this folder and NumPy, without the editable install next to them (-S)."""
    path = [str(folder), sysconfig.get_path("purelib")]
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {path!r}\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sources():
    """Each file of the library by its place in the package."""
    for target, folder in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            inside = f"{target}/{path.relative_to(ROOT / folder).as_posix()}"
            is_native = path.name.startswith(NATIVE)
            if path.suffix in SUFFIXES and not is_native and not LEFT_OUT & set(inside.split("/")):
                yield inside, path


def compiled(source):
    """The code of a file without docstrings and annotations of functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return compile(tree, "", "exec", optimize=2)


def within(code):
    return [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def steps(code):
    """Yield the operations and arguments of a function's code, without the targets of jumps."""
    for instruction in dis.get_instructions(code):
        if instruction.opcode not in LAYOUT:
            yield instruction.opcode, None if isinstance(instruction.argval, types.CodeType) else instruction.argval


def private_names(code):
    """The private names of a module that its own code, or that of a class, uses."""
    return [what for how, what in steps(code) if how in GLOBALS and re.match("_[^_]", what)]


class Renamed:
    """Each name has another, which is no other name's."""

    def __init__(self):
        self.short, self.full = {}, {}

    def check(self, full, short):
        assert self.short.setdefault(full, short) == short
        assert self.full.setdefault(short, full) == full


def compare(one, other, of_module, of_function=None):
    """Two pieces of code do the same, but for names that only they see."""
    assert other.co_name in (one.co_name, of_module.short.get(one.co_name))
    is_function = one.co_flags & inspect.CO_OPTIMIZED
    if is_function:
        of_function = of_function or Renamed()
        parameters = one.co_argcount + one.co_kwonlyargcount
        assert one.co_varnames[:parameters] == other.co_varnames[:parameters]
        for (how, what), (how_other, what_other) in zip(steps(one), steps(other), strict=True):
            assert how == how_other
            if how in VARIABLES:
                of_function.check(what, what_other)
            elif how in GLOBALS and re.match("_[^_]", what):
                of_module.check(what, what_other)
            else:
                assert what == what_other
    else:
        for names in zip(private_names(one), private_names(other), strict=True):
            of_module.check(*names)
    for inner, inner_other in zip(within(one), within(other), strict=True):
        compare(inner, inner_other, of_module, of_function)
    if is_function:
        assert {of_function.short[name] for name in one.co_cellvars} == set(other.co_cellvars)


def test_it_is_small():
    assert len(library_wheel()) < LARGEST


def test_installers_know_it_for_one_of_pyodide():
    assert wheel_name().endswith("-py3-none-pyemscripten_2026_0_wasm32.whl")
    names = zipfile.ZipFile(io.BytesIO(library_wheel())).namelist()
    assert {name.rpartition("/")[2] for name in names} == {
        "__init__.py", "unpack.py", "library.xz", "METADATA", "WHEEL", "RECORD", "LICENSE"
    }  # fmt: skip


def archived(folder, package):
    """The texts in a package's archive, by their paths."""
    read = "archive = sys.meta_path[0]; print(json.dumps({one: text.decode() for one, text in archive.files.items()}))"
    return json.loads(run(folder, f"import json, sys, {package}; {read}"))


@pytest.fixture(scope="module")
def texts(page_with_more):
    """Each file of both wheels by its place in the package."""
    packed = {Path(path): text for path, text in archived(page_with_more, "optirs_web").items()}
    beside = [
        path for path in (page_with_more / "optirs_web").rglob("*") if path.suffix in SUFFIXES and path not in packed
    ]
    result = packed | {path: path.read_text("utf-8") for path in beside}
    return {path.relative_to(page_with_more).as_posix(): text for path, text in result.items()}


def test_each_file_is_in_one_of_the_two(texts):
    assert set(texts) == {name for name, _ in sources()} | {"optirs_web/unpack.py"}


@pytest.mark.slow
def test_its_functions_are_those_of_the_sources(texts):
    for name, path in sources():
        if path.suffix == ".py":
            compare(compiled(path.read_text("utf-8")), compiled(texts[name]), Renamed())


ERROR = """
import inspect, optirs_web as ow
from optirs_web import compiled
try:
    ow.compile(3)
except TypeError as error:
    print(inspect.getinnerframes(error.__traceback__)[-1].code_context[0].strip())
print(inspect.getsource(compiled.compile).splitlines()[0])
"""


def test_tracebacks_show_its_lines(page):
    raised, defined = run(page, ERROR).splitlines()
    assert raised.startswith("raise TypeError(")
    assert defined.startswith("def compile(")


NAMES_WITHOUT_DOCSTRING = """
import inspect, json, optirs_web as ow
names = [one for one in ow.__all__ if one not in ("__version__", "benchmarks", "datasets")]
public = [(ow, one) for one in names] + [(ow.optim, one) for one in ow.optim.__all__]
print(json.dumps([one for module, one in public if not inspect.getdoc(getattr(module, one))]))
"""


def test_what_users_call_is_there_and_says_what_it_is(page_with_more):
    modules = {
        "averaging",
        "errors",
        "interop",
        "lr_scheduler",
        "nn",
        "optim",
        "projections",
        "schedules",
        "transforms",
    }
    assert set(json.loads(run(page_with_more, NAMES_WITHOUT_DOCSTRING))) <= modules


MODULES = """
import optirs_web as ow
from optirs_web import nn
model = nn.Sequential(nn.Linear(3, 4, device="cpu"), nn.LayerNorm(4, device="cpu"))
print(model(ow.ones((2, 3), device="cpu")).shape)
"""


@pytest.mark.slow
def test_modules_come_in_a_second_wheel(page, page_with_more):
    assert run(page_with_more, MODULES).strip() == "(2, 4)"
    names = ("ow.nn", "ow.grad", "ow.profile", "ow.tune", "ow.optim.from_wgsl", "ow.optim.LBFGS", "ops.layer_norm")
    for expression in (*names, "ow.ones((2, 2), device='cpu').var()"):
        program = f"""
            import optirs_web as ow
            from optirs_web import ops
            try:
                {expression}
            except ModuleNotFoundError as error:
                print(error)
        """
        assert "load optirs_web_more too" in run(page, textwrap.dedent(program))


def test_the_second_wheel_asks_for_the_first():
    names = zipfile.ZipFile(io.BytesIO(more_wheel())).read(
        f"{more_wheel_name().partition('-py3')[0]}.dist-info/METADATA"
    )
    assert f"Requires-Dist: optirs-web=={ow.__version__}".encode() in names


TRAINING = """
import optirs_web as ow
ow.device("cpu")
w = ow.Parameter([3.0, -2.0], device="cpu")
optimizer = ow.optim.AdamW([w], lr=0.1)
for _ in range(100):
    optimizer.zero_grad()
    (w * w).sum().backward()
    optimizer.step()
print((w * w).sum().item())
"""


def test_it_trains(page):
    assert float(run(page, TRAINING)) < 0.01


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ('"""A module."""\nx = 1  # one\n', "x = 1"),
        (
            'def f(x: int) -> int:\n    """One.\n\n    Two.\n    """\n    y: int = x\n    return y\n',
            'def f(x):\n """One."""\n a = x\n return a',
        ),
        ('def _f():\n    """One."""\n', "def _a():\n pass"),
        ('class A:\n    """One."""\n\n    x: str\n    """Two."""\n', 'class A:\n """One."""\n x: int'),
        ("@dataclass\nclass _A:\n    x: str\n", '@dataclass\nclass _A:\n """."""\n x: int'),
        ("class _A:\n    x: ClassVar[str] = ''\n", "class _A:\n x: ClassVar = ''"),
        ("x: str = ''\n", "x = ''"),
        ("if TYPE_CHECKING:\n    import a\nx = 1\n", "x = 1"),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    a = None\n", "a = None"),
        (
            "from __future__ import annotations\nfrom typing import Any, cast\nx = cast\n",
            "from typing import cast\nx = cast",
        ),
        ('__all__ = ["x"]\nx = f"""a\n    {b}"""\n', "x = f'a\\n    {b}'"),
    ],
)
def test_python_keeps_what_runs_and_the_first_paragraph_of_public_docstrings(source, short):
    assert shorten("a.py", source, {"A", "f"}, set()).strip() == short


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ("_x = 1\n_y = _x\n", "_a = 1\n_b = _a"),
        ("_x = 1\n_kept = _x\n", "_a = 1\n_kept = _a"),
        ("_x = 1\nclass A:\n _x = 2\n", "_x = 1\n\nclass A:\n _x = 2"),
        ("_x = 1\ndef f(_x):\n return _x\n", "_x = 1\n\ndef f(_x):\n return _x"),
        ("from b import _x\n", "from b import _x"),
        ("_x = 0\ndef f():\n global _x\n _x = 1\n", "_a = 0\ndef f():\n global _a\n _a = 1"),
        ("def f(a):\n one = a\n other = one + b\n", "def f(a):\n c = a\n d = c + b"),
        ("def f(x):\n f(one=[one for one in x])\n", "def f(x):\n f(one=[a for a in x])"),
        (
            "def f():\n one = 1\n def g():\n  nonlocal one\n  one = 2\n",
            "def f():\n a = 1\n\n def g():\n  nonlocal a\n  a = 2",
        ),
        ("def f():\n one = 1\n return lambda: one\n", "def f():\n a = 1\n return lambda: a"),
        ("def f():\n one = 1\n return lambda one: one\n", "def f():\n one = 1\n return lambda one: one"),
        ("def f():\n one = 1\n class A:\n  one = 2\n", "def f():\n one = 1\n\n class A:\n  one = 2"),
        ("def f(x=one):\n one = x\n", "def f(x=one):\n a = x"),
        ("def f():\n from m import one as two\n one = two\n", "def f():\n from m import one as two\n a = two"),
        ("def f():\n one = 1\n return locals()\n", "def f():\n one = 1\n return locals()"),
        (
            "def f():\n try:\n  g()\n except E as error:\n  g(error)\n",
            "def f():\n try:\n  g()\n except E as a:\n  g(a)",
        ),
        (
            "def f(x):\n match x:\n  case {'y': [one, *two], **three} as four:\n   return (one, two, three, four)\n",
            "def f(x):\n match x:\n  case {'y': [c, *d], **b} as a:\n   return (c, d, b, a)",
        ),
    ],
)
def test_names_that_nobody_else_sees_are_short(source, short):
    assert ast.dump(rename(source, {"_kept"})) == ast.dump(ast.parse(short))


def test_wgsl_and_javascript_lose_comments_and_indentation():
    assert shorten("a.wgsl", "// One.\nfn f() {\n    return; // two\n}\n", set(), set()) == "fn f() {\nreturn;\n}\n"
    script = '// One.\nf("https://a");\n\n    // Two.\n    g();\n'
    assert shorten("a.js", script, set(), set()) == 'f("https://a");\ng();\n'


FILES = {
    "a.py": "x = ', = self.'\n   y = \"''\"\n" * 4,
    "b/c.wgsl": "",
    "d.py": 'def f():\n "A ‖ × ·\\n"\n """B\n C"""\n' * 4,
    "__init__.py": "x = 'one'\n",
}


def test_what_is_packed_is_read_again(tmp_path):
    package = tmp_path / "packed"
    package.mkdir()
    (package / "library.xz").write_bytes(pack(FILES))
    shutil.copy(ROOT / "demo_site/unpack.py", package)
    (package / "__init__.py").write_text("from .unpack import unpack\nexec(unpack(__name__, __file__))\n")
    assert archived(tmp_path, "packed") == {str(package / name): text for name, text in FILES.items()}
    assert run(tmp_path, "import packed, packed.d; print(packed.x, packed.d.f.__doc__)") == "one A ‖ × ·\n\n"
