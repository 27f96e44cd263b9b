"""The wheels that are published: what is in them, and that the library's works without the demo's."""

import io
import json
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from wheels import FOLDERS, ROOT, build_wheels

import optirs_web as ow
from optirs_web.demo_site.library import library_wheel, wheel_name

APPLICATIONS = ("benchmarks", "cli", "datasets", "demo_site", "examples", "training", "translations")
SOURCES = {".py", ".pyi", ".js", ".wgsl", ".gz", ".html", ".typed"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build_wheels(tmp_path_factory.mktemp("wheels"))


def sources(tree):
    """Each source file, by the path at which a wheel has it."""
    result = {}
    for target, folder in FOLDERS.items():
        for path in (tree / folder).rglob("*"):
            inside = path.relative_to(tree / folder)
            if path.suffix in SOURCES and not {"static", "build"} & set(inside.parts):
                result[f"{target}/{inside.as_posix()}"] = path
    return result


def files(wheel):
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def of_application(path):
    return path.split("/")[1] in APPLICATIONS


def run_installed(wheels, folder, program):
    """Run Python with these wheels, without the editable install next to them (-S)."""
    for wheel in wheels:
        wheel.extractall(folder)
    path = [str(folder), sysconfig.get_path("purelib")]
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {path!r}\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


@pytest.mark.slow
def test_each_source_is_in_one_wheel(built):
    expected, library, demo = sources(built.tree).keys(), files(built.library), files(built.demo)
    assert {name for name in expected if not of_application(name)} == library
    assert {name for name in expected if of_application(name)} == {
        name for name in demo if "/static/" not in name and not name.endswith((".md", ".json"))
    }
    assert "optirs_web/cli/optimizers.json" in demo


@pytest.mark.slow
def test_the_wheels_hold_the_sources(built):
    for path, source in sources(built.tree).items():
        packaged = (built.demo if of_application(path) else built.library).read(path)
        assert packaged == source.read_bytes(), path


@pytest.mark.slow
def test_the_site_serves_the_librarys_wheel(built):
    served = zipfile.ZipFile(io.BytesIO(library_wheel()))
    assert wheel_name() == Path(built.library.filename).name
    assert set(served.namelist()) == set(built.library.namelist())
    for name in (*files(served), f"optirs_web-{ow.__version__}.dist-info/METADATA"):
        assert served.read(name) == built.library.read(name), name


SHADER = "from optirs_web.__main__ import main; sys.argv[1:] = ['shader', 'relu']; main()"


@pytest.mark.slow
def test_the_library_alone_says_what_the_command_line_needs(built, tmp_path):
    done = run_installed([built.library], tmp_path, SHADER)
    assert done.returncode == 1
    assert "pip install 'optirs-web[demo]'" in done.stderr


@pytest.mark.slow
def test_the_demo_brings_the_command_line_and_the_site(built, tmp_path):
    done = run_installed([built.library, built.demo], tmp_path, f"import optirs_web.demo_site\n{SHADER}")
    assert done.returncode == 0, done.stderr
    assert "@compute" in done.stdout


IN_A_CLONE = """
import sys
sys.path += {packages!r}  # what is installed, without the finder of an editable install
import optirs_web as ow
from optirs_web.demo_site.programs import home
print(ow.__file__, ow.ones((2,), device="cpu").sum().item(), home.__file__)
"""


def test_python_started_in_a_clone_finds_all_of_its_package():
    """The folder comes before what is installed: after `pip install .` in a clone that is what a first try imports."""
    packages = [path for path in sys.path if path.endswith("-packages")]
    command = [sys.executable, "-S", "-c", IN_A_CLONE.format(packages=packages)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here, total, program = done.stdout.split()
    assert (here, total) == (f"{ROOT}/optirs_web/__init__.py", "2.0")
    assert program == f"{ROOT}/demo_site/programs/home.py"


def test_the_two_distributions_have_one_version():
    library, demo = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in (".", "demo_site")
    )
    assert demo["version"] == library["version"]
    assert demo["dependencies"] == [f"optirs-web[applications]=={library['version']}"]
    for extra in ("demo", "train"):
        assert library["optional-dependencies"][extra] == [f"optirs-web-demo=={library['version']}"]


CHECK = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts/check_release.py")))


@pytest.mark.slow
def test_the_wheels_say_what_an_index_wants_to_know(built, tmp_path):
    for wheel in (built.library, built.demo):
        shutil.copy(wheel.filename, tmp_path)
    assert list(CHECK.faults(tmp_path, ow.__version__)) == []
    assert len(list(CHECK.faults(tmp_path, "9.9.9"))) >= 2
    (tmp_path / wheel_name()).unlink()
    (fault,) = CHECK.faults(tmp_path, ow.__version__)
    assert "there has to be one each of" in fault


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "instead", "fault"),
    [
        ("License-Expression: Apache-2.0 AND CC-BY-4.0\n", "", "has no License-Expression"),
        (
            "Requires-Dist: optirs-web[applications]==",
            "Requires-Dist: optirs-web[applications]>=",
            "not the same version",
        ),
        ("Description-Content-Type: text/markdown\n", "", "has no description in Markdown"),
        ("\nVersion: ", "\nVersion: 1", "is of version 1"),
    ],
)
def test_what_an_index_would_refuse_is_found(built, line, instead, fault, tmp_path):
    whole = built.demo
    path = tmp_path / Path(whole.filename).name
    with zipfile.ZipFile(path, "w") as wheel:
        for name in whole.namelist():
            content = whole.read(name)
            if name.endswith("METADATA"):
                assert line in content.decode()
                content = content.decode().replace(line, instead).encode()
            wheel.writestr(name, content)
    (actual,) = CHECK.faults_of(path, ow.__version__)
    assert fault in actual


# Until the packages are on PyPI, their names install nothing, or what somebody else has put there.


def test_what_the_pages_say_to_install_is_in_the_clone_or_a_wheel_that_it_builds():
    lines = {
        page: re.findall(r"^ *(?:%?pip install|await micropip\.install\()(.*?)(?:#.*)?$", text, re.MULTILINE)
        for page, text in (
            ("docs/package.md", (ROOT / "docs/package.md").read_text("utf-8")),
            ("docs/jupyterlite.md", (ROOT / "docs/jupyterlite.md").read_text("utf-8").partition("```sh")[0]),
            *((path.name, "".join(sources_of(path))) for path in (ROOT / "docs/jupyterlite").glob("*.ipynb")),
        )
    }
    assert len(lines) == 3
    for page, commands in lines.items():
        assert commands, page
        for command in commands:
            for part in command.strip(' ")').removeprefix("-q ").split():
                name = part.removeprefix("emfs:")
                assert name == wheel_name() if name != part else (ROOT / part / "pyproject.toml").is_file(), (
                    page,
                    part,
                )


def test_the_line_to_install_on_the_first_page_brings_what_its_program_imports():
    page = (ROOT / "demo_site/templates/home.html").read_text("utf-8")
    (line,) = re.findall(r'<code id="install">pip install (.*?)</code>', page)
    folders = [ROOT / part for part in line.split()]
    assert all((folder / "pyproject.toml").is_file() for folder in folders)
    text = (ROOT / "demo_site/frontend/src/lib/natively.js").read_text("utf-8")
    assert "from optirs_web.demo_site.programs.home import" in text
    assert ROOT / "demo_site" in folders


def sources_of(notebook):
    return [line for cell in json.loads(notebook.read_text("utf-8"))["cells"] for line in [*cell["source"], "\n"]]
