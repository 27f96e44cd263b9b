"""The native program that a page shows runs natively, unchanged."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
from requirements import missing

CLONE = Path(__file__).parents[2]
PROGRAMS = CLONE / "demo_site" / "programs"
SHOWN = sorted(PROGRAMS.glob("examples/*.py"))

CONVERT = """
import { natively } from "./demo_site/frontend/src/lib/natively.js";
let program = "";
for await (const piece of process.stdin.setEncoding("utf8")) program += piece;
process.stdout.write(natively(program));
"""

WRAPPED = '''"""A."""

import asyncio


async def main():
    x = await f()


asyncio.run(main())
'''


def natively(program):
    """The text that the page shows."""
    if which("node") is None:
        missing("webgpu", "node is not installed")
    command = ["node", "--input-type=module", "--eval", CONVERT]
    return subprocess.run(command, input=program, capture_output=True, text=True, check=True, cwd=CLONE).stdout


@pytest.mark.slow
@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_the_native_form_of_a_program_runs_and_prints(path, tmp_path):
    (tmp_path / "program.py").write_text(natively(path.read_text("utf-8")))
    environment = {**os.environ, "OPTIRS_DEVICE": "cpu", "MPLBACKEND": "agg", "PYTHONPATH": ""}
    command = [sys.executable, "-W", "ignore", "program.py"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


@pytest.mark.parametrize(
    ("program", "native"),
    [
        ("print(1)\n", "print(1)\n"),
        ("# await\nprint('a')\n", "# await\nprint('a')\n"),
        ("async def f():\n    await g()\n", "async def f():\n    await g()\n"),
        ("await f(1)\n", "import asyncio\n\nasyncio.run(f(1))\n"),
        ('"""A."""\n\nx = await f()\n', WRAPPED),
        ("from home import spiral\n", "from optirs_web.demo_site.programs.home import spiral\n"),
    ],
    ids=["as it is", "a comment", "in a function", "a statement", "an expression", "of the page"],
)  # fmt: skip
def test_what_is_awaited_at_the_top_is_run(program, native):
    assert natively(program) == native


def test_the_native_form_of_the_first_pages_program_trains(tmp_path):
    program = natively((PROGRAMS / "first_page" / "ten_lines.py").read_text("utf-8"))
    (tmp_path / "program.py").write_text(program)
    environment = {**os.environ, "OPTIRS_DEVICE": "cpu", "PYTHONPATH": ""}
    command = [sys.executable, "-W", "ignore", "program.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        process.kill()  # it would go on for 2,000 steps
    assert all(line.startswith("step ") for line in lines), lines
