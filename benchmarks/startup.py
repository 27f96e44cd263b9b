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
    """Milliseconds of each stage in one new process."""
    program = PROGRAM.format(stages=list(STAGES.values()))
    # As an installed package is found: with its bytecode cached.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment)
    return json.loads(result.stdout)


def main():
    measure()  # fills the caches of bytecode
    runs = list(zip(*(measure() for _ in range(RUNS)), strict=True))
    print(f"{'stage':24}{'min ms':>10}{'median ms':>12}   ({RUNS} processes)")
    for name, times in zip(STAGES, runs, strict=True):
        print(f"{name:24}{min(times):10.1f}{statistics.median(times):12.1f}")
    tensor = [one[0] + one[2] for one in zip(*runs, strict=True)]
    result = [one[0] + one[2] + one[3] for one in zip(*runs, strict=True)]
    for name, times in (("up to a first tensor", tensor), ("up to a first result", result)):
        print(f"{name:24}{min(times):10.1f}{statistics.median(times):12.1f}   (without NumPy's own import)")


if __name__ == "__main__":
    main()
