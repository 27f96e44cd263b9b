"""`make bench-compare`: counts of a commit and of the working tree."""

import os
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

compare = runpy.run_path(str(Path(__file__).parent.parent / "scripts/compare_counts.py"))


def test_only_counts_that_differ_and_are_on_both_sides_are_told():
    before = {"cpu": {"replay": {"calls": 10, "submits": 1}}}
    now = {"cpu": {"replay": {"calls": 12, "submits": 1, "peak_memory": 5}, "new": {"calls": 1}}}
    assert compare["changes"](before, now) == [("cpu", "replay", "calls", 10, 12)]


@pytest.mark.slow
def test_a_commit_is_counted_by_its_own_code():
    """Its folders are its own, also where an editable install maps their names to this clone."""
    with compare["clone_of"]("HEAD") as folder:
        module = runpy.run_path(str(folder / "tests/counts.py"))
        assert module["_ROOT"] == folder
        program = "import optirs_web.native_backends as n, optirs_web.shaders as s; print(*n.__path__, *s.__path__)"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), sysconfig.get_path("purelib")])}
        done = subprocess.run(
            [sys.executable, "-S", "-c", program], capture_output=True, text=True, env=environment, cwd=folder
        )
        assert done.stdout.count(str(folder)) == 2, done.stderr
    assert not folder.exists()
