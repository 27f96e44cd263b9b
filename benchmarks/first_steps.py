"""Time the first AdamW steps of a process on `cpu`, with an empty cache of machine code and with a filled one.

Each case runs in a new process. Times are wall times of `optimizer.step()`. Processor times are those of all threads
during the steps, and of the whole process together with the one that compiles for it.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

CASES = {"200 x 1,024": [1024] * 200, "1 x 16,777,216": [1 << 24]}
WITH_BYTECODE = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""The environment, in which bytecode is cached as that of an installed package."""
PROGRAM = """
import json, sys, time
import numpy as np
import optirs_web as ow

sizes, steps, seconds = json.loads(sys.argv[1])
device = ow.device("cpu")
params = [ow.Parameter(np.ones(size, np.float32), device=device) for size in sizes]
for param in params:
    param.grad = ow.ones(param.shape, device=device)
optimizer = ow.optim.AdamW(params)
times, start, begin = [], time.process_time(), time.perf_counter()
while len(times) < steps or time.perf_counter() - begin < seconds:
    step = time.perf_counter()
    optimizer.step()
    device.synchronize()
    times.append(time.perf_counter() - step)
print(json.dumps([times, time.process_time() - start]))
"""


def measured(sizes, steps, seconds, folder):
    """Run a process that takes at least `steps` steps, for at least `seconds`, with a folder as its cache.

    Returns:
        The wall seconds of each step; the processor seconds of the steps, and those of all processes.
    """

    def children():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = children()
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([sizes, steps, seconds])],
        env=WITH_BYTECODE | {"NUMBA_CACHE_DIR": folder},
        capture_output=True,
        check=True,
    )
    times, processor = json.loads(result.stdout)
    return times, processor, children() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--filling", type=float, default=10.0, help="seconds of the process that fills the cache")
    arguments = parser.parse_args()
    columns = "".join(f"{name:>9}" for name in ("first", "longest", "median", "last", "sum"))
    print(f"{'tensors':16}{'cache':8}{'steps':>6}{columns}  processor: steps  process  (ms)")
    for case, sizes in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("empty", "warm"):
                times, processor, process = measured(sizes, arguments.steps, 0, folder)
                figures = times[0], max(times), statistics.median(times), times[-1], sum(times)
                wall = "".join(f"{1e3 * figure:9.1f}" for figure in figures)
                print(f"{case:16}{cache:8}{len(times):6}{wall}{1e3 * processor:18.0f}{1e3 * process:9.0f}", flush=True)
                if cache == "empty":
                    measured(sizes, 1, arguments.filling, folder)


if __name__ == "__main__":
    main()
