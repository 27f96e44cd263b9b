"""The two wheels: what is in them, how large the library's is, and that it works without the other."""

import ast
import json
import runpy
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from wheels import FOLDERS, ROOT, build_wheels

LARGEST = 480_000  # bytes: a page downloads the library before it can train (190,000 before there were 53 optimizers)
APPLICATIONS = ("cli", "datasets", "demo_site", "training")
SOURCES = {".py", ".js", ".wgsl", ".gz", ".html", ".typed"}

without_comments = runpy.run_path(str(ROOT / "setup.py"))["without_comments"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build_wheels(tmp_path_factory.mktemp("wheels"))


def sources(tree):
    """Each source file, by the path at which a wheel has it."""
    found = {}
    for target, folder in FOLDERS.items():
        for path in (tree / folder).rglob("*"):
            inside = path.relative_to(tree / folder)
            if path.suffix in SOURCES and not {"static", "build"} & set(inside.parts):
                found[f"{target}/{inside.as_posix()}"] = path
    return found


def files(wheel):
    return {one for one in wheel.namelist() if ".dist-info/" not in one}


def of_application(path):
    return path.split("/")[1] in APPLICATIONS


def code(source):
    """The syntax tree with the place where each node begins; every bare string is empty."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = ""
        if hasattr(node, "lineno"):
            node.end_lineno, node.end_col_offset = node.lineno, node.col_offset
    return ast.dump(tree, include_attributes=True)


def run_installed(wheels, folder, program):
    """Run Python with these wheels, without the editable install beside them (-S)."""
    for wheel in wheels:
        wheel.extractall(folder)
    path = [str(folder), sysconfig.get_path("purelib")]
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {path!r}\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_the_library_is_small(built):
    assert Path(built.library.filename).stat().st_size < LARGEST


def test_each_source_is_in_one_wheel(built):
    expected, library, demo = sources(built.tree).keys(), files(built.library), files(built.demo)
    assert {one for one in expected if not of_application(one)} == library
    assert {one for one in expected if of_application(one)} == {
        one for one in demo if "/static/" not in one and not one.endswith((".md", ".json"))
    }
    assert "optirs_web/cli/optimizers.json" in demo


def test_the_wheels_hold_the_code_of_the_sources(built):
    for path, source in sources(built.tree).items():
        packaged = (built.demo if of_application(path) else built.library).read(path)
        if source.suffix == ".py":
            assert code(packaged) == code(source.read_bytes()), path
        else:
            assert packaged == source.read_bytes(), path


NAMES_WITHOUT_DOCSTRING = """
import inspect, json, optirs_web as ow
names = [one for one in ow.__all__ if one not in ("__version__", "datasets")]
public = [(ow, one) for one in names] + [(ow.optim, one) for one in ow.optim.__all__]
print(json.dumps([one for module, one in public if not inspect.getdoc(getattr(module, one))]))
"""


def test_what_users_call_keeps_its_docstring(built, tmp_path):
    done = run_installed([built.library], tmp_path, NAMES_WITHOUT_DOCSTRING)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


SHADER = "from optirs_web.__main__ import main; sys.argv[1:] = ['shader', 'relu']; main()"


def test_the_library_alone_says_what_the_command_line_needs(built, tmp_path):
    done = run_installed([built.library], tmp_path, SHADER)
    assert done.returncode == 1
    assert "pip install 'optirs-web[demo]'" in done.stderr


def test_the_demo_brings_the_command_line_and_the_site(built, tmp_path):
    done = run_installed([built.library, built.demo], tmp_path, f"import optirs_web.demo_site\n{SHADER}")
    assert done.returncode == 0, done.stderr
    assert "@compute" in done.stdout


def test_the_two_distributions_have_one_version():
    library, demo = (
        tomllib.loads((ROOT / one / "pyproject.toml").read_text())["project"] for one in (".", "demo_site")
    )
    assert demo["version"] == library["version"]
    assert demo["dependencies"] == [f"optirs-web[applications]=={library['version']}"]
    for extra in ("demo", "train"):
        assert library["optional-dependencies"][extra] == [f"optirs-web-demo=={library['version']}"]


@pytest.mark.parametrize(
    ("source", "stripped"),
    [
        ("", ""),
        ("x = 1  # one\n", "x = 1\n"),
        ('"""A module.\n\nIts story.\n"""\n\nx = 1\n', '""\n\n\n\n\nx = 1\n'),
        ('def f():\n    """Say."""  # aloud\n', 'def f():\n    ""\n'),
        ('# À la carte.\nclass A:\n    # What.\n    """Why.\n    """\n', '\nclass A:\n\n    ""\n\n'),
        ("x = f()  # type: ignore[attr-defined]\n", "x = f()  # type: ignore[attr-defined]\n"),
        ('f(\n    "# a",  # b\n    """c\n    # d\n""",\n)\n', 'f(\n    "# a",\n    """c\n    # d\n""",\n)\n'),
        ('"a".join(b)\n', '"a".join(b)\n'),
    ],
)
def test_comments_and_docstrings_go_and_lines_stay(source, stripped):
    assert without_comments(source) == stripped
