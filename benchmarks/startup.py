"""Start-up of the library: processor milliseconds in new processes, minimum and median.

Where Numba is installed, also those of its import, and of kernels that LLVM compiles or that its cache holds.
"""

import statistics
import tempfile
from importlib.util import find_spec

from optirs_web.benchmarks.starting import stage_seconds

RUNS = 15
NUMBA_RUNS = 3
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
"""The rows: a name, the stages that it sums, and a note."""
NUMBA_STAGES = {
    "import numba": "import numba",
    "first tensor": "import optirs_web as ow; x = ow.tensor([1.0, 2.0], device='cpu')",
    "the first kernel": "x.tanh().tolist()",
    "another one": "x.log().tolist()",
    "the two of AdamW": "ow.optim.AdamW([ow.Parameter(x)]).step(grads=[x]); x.device.synchronize()",
}


def measure(stages=STAGES, **environment):
    """Return the processor milliseconds of each stage in one new process, by name."""
    times = stage_seconds(list(stages.values()), **environment)
    return {name: 1e3 * seconds for name, seconds in zip(stages, times, strict=True)}


def print_row(name, times, note=""):
    print(f"{name:28}{min(times):10.1f}{statistics.median(times):12.1f}{note}")


def main():
    measure()  # fills the caches of bytecode
    runs = [measure() for _ in range(RUNS)]
    print(f"{'stage':28}{'min ms':>10}{'median ms':>12}   ({RUNS} processes)")
    for name, stages, note in FIGURES:
        print_row(name, [sum(run[stage] for stage in stages) for run in runs], note)
    if find_spec("numba"):
        show_numba()


def show_numba():
    compiled, cached = [], []
    for _ in range(NUMBA_RUNS):
        with tempfile.TemporaryDirectory() as folder:
            for runs in (compiled, cached):
                runs.append(measure(NUMBA_STAGES, OPTIRS_CPU="numba", NUMBA_CACHE_DIR=folder))
    print_row("import numba", [run["import numba"] for run in cached], f"   ({NUMBA_RUNS} processes)")
    for stage in list(NUMBA_STAGES)[2:]:
        for how, runs in (("compiled", compiled), ("kept", cached)):
            print_row(f"{stage}, {how}", [run[stage] for run in runs])


if __name__ == "__main__":
    main()
