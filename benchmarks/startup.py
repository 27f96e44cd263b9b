"""What the library adds to the start of a program: CPU milliseconds in fresh processes, minimum and median."""

import json
import os
import statistics
import subprocess
import sys

RUNS = 15
STAGES = {
    "import optirs_web": "import optirs_web as ow",
    "import numpy": "import numpy",
    "first tensor on cpu": "x = ow.tensor([1.0, 2.0], device='cpu')",
    "first operation": "(x + 1.0).tolist()",
}
TO_TENSOR = ["import optirs_web", "first tensor on cpu"]
WITHOUT_NUMPY = "   (without NumPy's own import)"
FIGURES = [
    *((stage, [stage], "") for stage in STAGES),
    ("up to a first tensor", TO_TENSOR, WITHOUT_NUMPY),
    ("up to a first result", [*TO_TENSOR, "first operation"], WITHOUT_NUMPY),
]
"""What is printed: a name, the stages that count, and a note."""
PROGRAM = """
import json, time
clock, times = time.process_time, []
for stage in {stages!r}:
    start = clock()
    exec(stage)
    times.append(1e3 * (clock() - start))
print(json.dumps(times))
"""


def measure():
    """Milliseconds of each stage in one new process, by name."""
    program = PROGRAM.format(stages=list(STAGES.values()))
    # As an installed package is found: with its bytecode cached.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment)
    return dict(zip(STAGES, json.loads(result.stdout), strict=True))


def main():
    measure()  # fills the caches of bytecode
    runs = [measure() for _ in range(RUNS)]
    print(f"{'stage':24}{'min ms':>10}{'median ms':>12}   ({RUNS} processes)")
    for name, stages, note in FIGURES:
        times = [sum(run[stage] for stage in stages) for run in runs]
        print(f"{name:24}{min(times):10.1f}{statistics.median(times):12.1f}{note}")


if __name__ == "__main__":
    main()
