"""The library's wheel for browsers: small, with the code of the sources, and itself again at the first import."""

import ast
import dis
import inspect
import io
import json
import subprocess
import sys
import sysconfig
import types
import zipfile

import pytest
from wheels import FOLDERS, ROOT

from optirs_web.demo_site.shorten import shorten
from optirs_web.demo_site.wheel import library_wheel, wheel_name

LARGEST = 200_000  # bytes: a page downloads it before it can train
LEFT_OUT = {"cli", "datasets", "demo_site", "training", "__main__.py", "wgpu.py"}

LAYOUT = {*dis.hasjrel, *dis.hasjabs, dis.opmap["NOP"]}  # instructions that depend on where lines begin


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The folder that a page has the library in."""
    folder = tmp_path_factory.mktemp("page")
    zipfile.ZipFile(io.BytesIO(library_wheel())).extractall(folder)
    return folder


def run(folder, program):
    """Run Python with what is in this folder and NumPy, without the editable install beside them (-S)."""
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
            if path.suffix in {".py", ".js", ".wgsl"} and not LEFT_OUT & set(inside.split("/")):
                yield inside, path


def functions(source):
    """What each function does but for where it jumps, by its name, without annotations."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    found = {}

    def collect(code):
        inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
        if code.co_flags & inspect.CO_OPTIMIZED:  # a function, not a module or class
            steps = [one for one in dis.get_instructions(code) if one.opcode not in LAYOUT]
            does = [(one.opname, None if one.argval in inner else one.argval) for one in steps]
            found.setdefault(code.co_qualname, []).append(does)
        for one in inner:
            collect(one)

    collect(compile(tree, "", "exec", optimize=2))  # without docstrings
    return found


def test_it_is_small():
    assert len(library_wheel()) < LARGEST


def test_installers_know_it_for_one_of_pyodide():
    assert wheel_name().endswith("-py3-none-pyemscripten_2026_0_wasm32.whl")
    names = zipfile.ZipFile(io.BytesIO(library_wheel())).namelist()
    assert {one.rpartition("/")[2] for one in names} == {
        "__init__.py", "library.xz", "METADATA", "WHEEL", "RECORD", "LICENSE"
    }  # fmt: skip


def test_the_first_import_unpacks_each_file_and_another_finds_them(page):
    version = run(page, "import optirs_web as ow; print(ow.__version__, ow.__file__)")
    assert not (page / "optirs_web/library.xz").exists()
    assert run(page, "import optirs_web as ow; print(ow.__version__, ow.__file__)") == version
    present = {one.relative_to(page).as_posix() for one in (page / "optirs_web").rglob("*") if one.is_file()}
    assert {one for one in present if "__pycache__" not in one} == {name for name, _ in sources()}


def test_its_functions_are_those_of_the_sources():
    for name, path in sources():
        if path.suffix == ".py":
            text = path.read_text("utf-8")
            assert functions(shorten(name, text, set())) == functions(text), name


NAMES_WITHOUT_DOCSTRING = """
import inspect, json, optirs_web as ow
names = [one for one in ow.__all__ if one not in ("__version__", "datasets")]
public = [(ow, one) for one in names] + [(ow.optim, one) for one in ow.optim.__all__]
print(json.dumps([one for module, one in public if not inspect.getdoc(getattr(module, one))]))
"""


def test_what_users_call_is_there_and_says_what_it_is(page):
    modules = {"errors", "interop", "optim", "averaging", "lr_scheduler", "projections", "schedules", "transforms"}
    assert set(json.loads(run(page, NAMES_WITHOUT_DOCSTRING))) <= modules


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
            'def f(x):\n """One."""\n y = x\n return y',
        ),
        ('def _f():\n    """One."""\n', "def _f():\n pass"),
        ('class A:\n    """One."""\n\n    x: int\n    """Two."""\n', 'class A:\n """One."""\n x: int'),
        ("@dataclass\nclass _A:\n    x: int\n", '@dataclass\nclass _A:\n """."""\n x: int'),
        ("if TYPE_CHECKING:\n    import a\nx = 1\n", "x = 1"),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    a = None\n", "a = None"),
        ('__all__ = ["x"]\nx = f"""a\n    {b}"""\n', "x = f'a\\n    {b}'"),
    ],
)
def test_python_keeps_what_runs_and_the_first_paragraph_of_public_docstrings(source, short):
    assert shorten("a.py", source, {"A", "f"}).strip() == short


def test_wgsl_loses_comments_and_indentation():
    assert shorten("a.wgsl", "// One.\nfn f() {\n    return; // two\n}\n", set()) == "fn f() {\nreturn;\n}\n"
