"""Start-up of a library: the processor time of its import, first tensor and first result in new processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial

from .libraries.library import Library
from .libraries.ours import Ours

__all__ = ["first_seconds", "stage_seconds"]

_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_PROGRAM = """
import json, sys, time
clock, times = time.process_time, []
for stage in json.loads(sys.argv[1]):
    start = clock()
    exec(stage)
    times.append(clock() - start)
print(json.dumps(times))
"""

_STAGES: Mapping[str, tuple[str, str, str]] = {
    "ours": ("import optirs_web as ow", "x = ow.tensor([1.0, 2.0], device={device!r})", "(x + 1.0).tolist()"),
    "numpy": ("import numpy as np", "x = np.array([1.0, 2.0], np.float32)", "(x + 1.0).tolist()"),
    "torch": ("import torch", "x = torch.tensor([1.0, 2.0])", "(x + 1.0).tolist()"),
    "jax": ("import jax.numpy as jnp", "x = jnp.array([1.0, 2.0])", "(x + 1.0).tolist()"),
    "tinygrad": ("from tinygrad import Tensor", "x = Tensor([1.0, 2.0], device='CPU').realize()", "(x + 1.0).tolist()"),
}
"""The stages of each library: the import, a first tensor, and a first result that is read back."""

_STAGE_COUNTS = {"import": 1, "tensor": 2, "result": 3}
"""The number of stages that are timed, by the name of the last."""


def stage_seconds(stages: list[str], **environment: str) -> list[float]:
    """Run pieces of Python one after the other in a new process.

    Args:
        stages: the pieces; later ones see the names of the earlier.
        environment: more variables. Variables of this library, which `optirs-web bench` sets for itself, are not
            inherited.

    Returns:
        The processor seconds of each piece.

    Raises:
        RuntimeError: a piece failed; the message is the last line of its output.
    """
    # Bytecode is cached, as that of an installed package.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OPTIRS_", _NO_BYTECODE))}
    command = [sys.executable, "-c", _PROGRAM, json.dumps(stages)]
    result = subprocess.run(command, capture_output=True, text=True, env={**inherited, **environment})
    if result.returncode:
        raise RuntimeError((result.stderr.strip() or f"exit status {result.returncode}").splitlines()[-1])
    times: list[float] = json.loads(result.stdout)
    return times


def first_seconds(stage: str, library: Library) -> Callable[[], float]:
    """Return a call that starts a process and returns its processor seconds up to "import", "tensor" or "result"."""
    device = library.device.name if isinstance(library, Ours) else ""
    stages = [text.format(device=device) for text in _STAGES[library.name][: _STAGE_COUNTS[stage]]]
    return partial(_sum, stages)


def _sum(stages: list[str]) -> float:
    return sum(stage_seconds(stages))
