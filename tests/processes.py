"""Run programs in processes of their own, where they would disturb the tests' process."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np


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


_WITH_ARRAYS = """
import json, sys
import numpy as np, torch

torch.set_num_threads(1)
folder = sys.argv[1]
with open(f"{folder}/options.json") as file:
    options = json.load(file)
given, results = np.load(f"{folder}/given.npz"), {}
"""


def run_with_arrays(program, options, arrays, folder):
    """The dict `results` that a program with torch fills in a process of its own, from its `options` and `given`."""
    (folder / "options.json").write_text(json.dumps(options), "utf-8")
    np.savez(folder / "given.npz", **arrays)
    source = f"{_WITH_ARRAYS}{program}\nnp.savez(folder + '/results.npz', **results)"
    command = [sys.executable, "-W", "ignore", "-c", source, str(folder)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr
    with np.load(folder / "results.npz") as result:
        return dict(result)
