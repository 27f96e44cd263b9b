"""``make fuzz``: random programs on every target; those that compute something else somewhere are reduced and printed.

Ends with status 1 where there is such a program, or a target is missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TESTS = Path(__file__).parents[1]
TOGETHER = 50
"""Programs of which those of a kind are compiled as one."""
IN_A_PROCESS = 250
"""Programs after which a process ends: compilers keep much of what they made."""
TARGETS = "cpu,vulkan,opencl,xla"


def main():
    """Parse the command line, run, and end the process."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=10_000, help="for all targets; 10,000 by default")
    parser.add_argument("--kernels", type=int, default=2_000, help="for targets with shaders only; 2,000 by default")
    parser.add_argument("--seed", default="0", help="every seed has its own programs; 0 by default")
    parser.add_argument("--first", type=int, default=0, help="the number of the first program; 0 by default")
    parser.add_argument(
        "--targets", default=TARGETS, help=f"{TARGETS} by default; there are quick-xla, numba and cuda besides"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes; one for each core by default")
    parser.add_argument("--show", choices=["exact", "real", "kernel"], help="print one program, and run it: --first N")
    options = parser.parse_args()
    sys.path[:0] = [str(TESTS), str(TESTS.with_name("examples"))]
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["PYOPENCL_NO_CACHE"] = "1"  # nothing is compiled twice
    if options.show:
        _show(options)
    elif options.jobs == 0:
        _run_here(options)
    else:
        sys.exit(_run_in_processes(options))


def _show(options):
    from fuzzing.search import described
    from fuzzing.targets import Program

    program = Program.of(options.show, f"{options.seed}:{options.first}", name=f"p{options.first}")
    print(described(program, None, options.targets.split(",")))


def _run_in_processes(options):
    """Parts of the range each in a process of its own; one that fails or crashes is an error."""
    command = [sys.executable, "-W", "ignore", __file__, "--jobs", "0", "--seed", options.seed, "--targets"]
    parts = []
    for kind, count in (("programs", options.programs), ("kernels", options.kernels)):
        other = "kernels" if kind == "programs" else "programs"
        for first in range(options.first, options.first + count, IN_A_PROCESS):
            some = min(IN_A_PROCESS, options.first + count - first)
            parts.append((some, [f"--{kind}", str(some), f"--{other}", "0", "--first", str(first)]))
    began, done, wrong = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory(prefix="fuzz") as caches, ThreadPoolExecutor(options.jobs) as pool:
        environment = {**os.environ, "POCL_CACHE_DIR": caches}

        def run(arguments):
            every = [*command, options.targets, *arguments]
            return subprocess.run(every, env=environment, capture_output=True, text=True, check=False)

        for (count, arguments), ended in zip(parts, pool.map(run, [arguments for _, arguments in parts]), strict=True):
            done, wrong = done + count, wrong + ended.stdout.count("\n=== ")
            print(ended.stdout, end="")
            if ended.returncode:
                print(f"{' '.join(arguments)} ended with {ended.returncode}:\n{ended.stderr[-3000:]}")
                wrong += 1
            print(f"{done:,} programs, {wrong} wrong, {time.monotonic() - began:.0f} s", flush=True)
    where = f"on {options.targets}; of seed {options.seed} from {options.first}"
    print(f"{options.programs:,} programs and {options.kernels:,} kernels {where}: {wrong} are wrong somewhere")
    return 1 if wrong else 0


def _run_here(options):
    """Print a report on each program that targets disagree on."""
    from _pytest.outcomes import OutcomeException

    from fuzzing.search import batches, described, disagreements, programs, smallest

    targets = options.targets.split(",")
    every = list(programs(options.programs, options.seed, options.first, options.kernels))
    for start in range(0, len(every), TOGETHER):
        for batch in batches(every[start : start + TOGETHER]):
            try:
                result = disagreements(batch, targets)
            except OutcomeException as missing:
                sys.exit(f"{missing}; --targets names others")
            for program, target in result:
                number = program.name.removeprefix("p")
                print(f"\n=== {target}: --seed {options.seed} --first {number} --show {program.kind}, reduced:")
                print(described(smallest(program, target, targets), target, targets))


if __name__ == "__main__":
    main()
