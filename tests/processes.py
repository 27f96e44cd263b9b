"""Programs in processes of their own, for what would disturb the tests' own."""

import os
import subprocess
import sys
import textwrap


def run_python(program, **environment):
    """A program in a process of its own, with its standard output as lines."""
    environment = {name: str(value) for name, value in {**os.environ, **environment}.items() if value is not None}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()
