"""The device `cpu` with Numba: the bits of NumPy's, in threads and forks, compiled when it pays and kept."""

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import numpy as np
import pytest
from numba_device import cpu_device
from requirements import missing

import optirs_web as ow
from optirs_web.errors import DeviceNotAvailableError
from optirs_web.native_backends.cpu import backend as cpu
from optirs_web.native_backends.cpu.numba import (
    backend as numba_cpu,
    kernels as numba_kernels,
    worker as numba_worker,
)
from optirs_web.native_backends.cpu.numba.loops import Loop, has_machine_code, keep_text, loop_of
from optirs_web.optim import transforms
from optirs_web.runtime.choosing import health
from optirs_web.runtime.device import Device
from optirs_web.runtime.map_kernels import elementwise
from optirs_web.runtime.numba_texts import numba_loops
from optirs_web.runtime.rule_kernels import UpdateKernel
from optirs_web.wgsl.numba_shell import Loops


@pytest.fixture(scope="module")
def both(numba):
    """The device with NumPy, and with Numba from the first launch on."""
    return cpu_device("numpy"), cpu_device("numba")


def trained(device, name, options, sizes=(1000, 3, 513), steps=3):
    """Parameters and state after some steps over two groups; of the last tensor in the first step alone."""
    random = np.random.default_rng(0)
    w = [ow.Parameter(random.standard_normal(size).astype(np.float32), device=device) for size in sizes]
    optimizer = getattr(ow.optim, name)([{"params": w[:1]}, {"params": w[1:], "lr": 0.01}], **options)
    for step in range(steps):
        for number, param in enumerate(w):
            grad = random.standard_normal(param.shape).astype(np.float32)
            param.grad = None if step and number == 2 else ow.tensor(grad, device=device)
        optimizer.step()
    state = optimizer.state_dict()["state"]
    return [tensor.numpy() for tensor in w] + [np.asarray(v) for slots in state.values() for v in slots.values()]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AdamW", {"amsgrad": True, "maximize": True}),
        ("AdamW", {"state_dtype": "bfloat16", "skip_nonfinite": True}),
        *(
            ("AdamW", {"param_dtype": "bfloat16", "rounding": rounding})
            for rounding in ("master", "stochastic", "kahan")
        ),
        (
            "AdamW",
            {"transforms": [transforms.clip_by_value(0.5), transforms.add_decayed_weights(0.1)], "maximize": True},
        ),
    ],
    ids=["amsgrad", "bfloat16", "master", "stochastic", "kahan", "transforms"],
)
def test_steps_have_the_bits_of_numpys(name, options, both):
    for array, other in zip(*(trained(device, name, options) for device in both), strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("LAMB", {}),
        ("LAMB", {"transforms": [transforms.clip_by_value(0.5)]}),
        ("AdamW", {"transforms": [transforms.clip_by_global_norm(0.5)], "skip_nonfinite": True}),
        ("AdamW", {"transforms": [transforms.clip_by_value(0.5), transforms.clip_by_norm(0.5)]}),
    ],
    ids=["lamb", "of transformed", "before advance", "after advance"],
)
def test_what_is_measured_is_summed_in_another_order(name, options, both):
    for array, other in zip(*(trained(device, name, options) for device in both), strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("transform", "part", "has_loops"),
    [
        (transforms.clip_by_value(0.5), "update", True),
        (transforms.add_noise(0.5), "update", False),
        (transforms.add_noise(0.5), "eval", True),  # which asks for no gradient
        (transforms.accumulate(2), "eval", False),
    ],
)
def test_loops_know_transforms_of_an_element_alone(transform, part, has_loops):
    rule = dataclasses.replace(ow.optim.AdamWScheduleFree.rule, stages=(transform.stage,))
    assert (numba_loops(UpdateKernel.of(rule, (), part)) is not None) == has_loops


def computed(device):
    """Values of fused and of single operations: broadcast, transposed, of conditions and of indices."""
    x = ow.tensor(np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6), device=device)
    column = ow.tensor(np.array([[1.0], [np.nan], [-2.0], [np.inf]], np.float32), device=device)
    step = ow.compile(lambda: (x.T * 2.0 - column.T).relu() + x.T, device=device)
    hooked = ow.compile(lambda: (x @ x.T).relu() * 2.0 - column, device=device)
    return [tensor.numpy() for tensor in (step(), hooked(), x + column, x.T > 0, x.exp(), ow.arange(7, device=device))]


def test_operations_have_the_bits_that_numpy_gave_until_they_were_compiled(both):
    waiting, compiled = cpu_device(""), both[1]  # NumPy takes far less than the patience with it
    for array, other in zip(computed(waiting), computed(compiled), strict=True):
        np.testing.assert_array_equal(array, other)
    candidates = [candidate for candidate in waiting.backend._kernels._known.values() if candidate is not None]
    assert candidates
    assert not any(candidate._loop for candidate in candidates)


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    """An empty one."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def wait_for(condition):
    """Wait until it holds."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_kernel_is_numpys_until_that_has_spent_much_on_it_and_it_is_compiled(both, cache_folder):
    kernels = numba_kernels.NumbaKernels(at_once=False)
    relu = elementwise("relu", "relu", ("tensor",), 0)
    x, y = np.array([-1, 2], np.float32).view(np.uint8), np.zeros(8, np.uint8)
    kept = kernels.bind(relu, [x, y], relu.pack((2,)))
    kept()
    candidate = kernels._known[relu]
    assert 0 < candidate.account.spent < numba_kernels._PATIENCE
    assert candidate._compilation is None
    candidate.account.spent = numba_kernels._PATIENCE
    kept()
    assert not candidate._compilation.is_done
    assert candidate._loop is None
    wait_for(lambda: candidate._compilation.is_done)
    for call in (kept, kernels.bind(relu, [x, y], relu.pack((2,)))):
        y[:] = 7
        call()
        assert y.view(np.float32).tolist() == [0, 2]
    assert candidate._is_compiled
    assert not candidate._loop._part.stats.cache_misses
    later = numba_kernels.NumbaKernels(at_once=False)
    call = later.bind(relu, [x, y], relu.pack((2,)))
    call()
    assert later._known[relu]._loop is None
    later._known[relu].account.spent = numba_kernels._LOADING
    call()
    assert later._known[relu]._is_compiled


def test_what_goes_beyond_its_arrays_is_an_error(both):
    relu = elementwise("relu", "relu", ("tensor",), 0)
    short, long = np.zeros(8, np.uint8), np.zeros(16, np.uint8)
    call = numba_kernels.NumbaKernels(at_once=True).bind(relu, [short, long], relu.pack((4,)))
    with pytest.raises(ValueError, match="broadcast"):
        call()


def test_what_numba_refuses_stays_numpys(numba, caplog, cache_folder):
    loops = Loops("from numba import njit\n\n@njit\ndef part(*given):\n    return given.none\n\nlaunch = part\n", ())
    relu = elementwise("relu", "relu", ("tensor",), 0)
    x, y = np.array([-1, 2], np.float32).view(np.uint8), np.zeros(8, np.uint8)
    candidate = numba_kernels._Candidate(relu, numba_kernels._Account(), strict=False)
    candidate._loop = loop_of(loops, "refused")
    first, second = (candidate.bind([x, y], relu.pack((2,))) for _ in range(2))
    for call in (first, first, second):
        y[:] = 7
        call()
        assert y.view(np.float32).tolist() == [0, 2]
    assert not candidate._is_compiled
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "Numba refuses 'relu'; cpu runs it in NumPy"
    ]


DOUBLES, TRIPLES = (
    Loops(f"from numba import njit\n\n@njit(cache=True, nogil=True)\ndef launch(x):\n    return {by} * x\n", ("x",))
    for by in (2, 3)
)


def cut(path, other):
    os.truncate(path, 20)


def empty(path, other):
    os.truncate(path, 0)


def replace(path, other):
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize(("kind", "damage"), [("nbi", cut), ("nbi", empty), ("nbc", cut), ("nbc", replace)])
def test_what_numba_keeps_is_compiled_again_where_a_file_is_damaged_or_anothers(kind, damage, numba, cache_folder):
    def computed():
        loops = [Loop(text, name) for text, name in ((DOUBLES, "doubles"), (TRIPLES, "triples"))]
        return [loop.bound((7,), 1, 1)() for loop in loops], [
            sum(loop._launch.stats.cache_hits.values()) for loop in loops
        ]

    assert computed() == ([14, 21], [0, 0])
    assert computed() == ([14, 21], [1, 1])
    doubles, triples = (next(cache_folder.rglob(f"{name}*.{kind}")) for name in ("doubles", "triples"))
    damage(doubles, triples)
    assert computed() == ([14, 21], [0, 1])
    assert computed() == ([14, 21], [1, 1])


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_numba_is_loaded_for_machine_code_and_not_for_a_text_alone(variable, numba, cache_folder, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(cache_folder) if variable == "NUMBA_CACHE_DIR" else "")
    monkeypatch.setenv(variable, str(cache_folder))
    assert keep_text(DOUBLES, "doubles")
    assert not has_machine_code(DOUBLES, "doubles")
    Loop(DOUBLES, "doubles").bound((7,), 1, 1)()
    assert has_machine_code(DOUBLES, "doubles")


IN_A_PROCESS = """
import os, threading
import numpy as np
import optirs_web as ow
from optirs_web.native_backends.cpu.numba import kernels as numba_kernels, loops as numba_loops

def steps():
    device = ow.runtime.device.Device(ow.device("cpu").backend)
    w = ow.Parameter(np.ones(1 << 17, np.float32), device=device)
    w.grad = ow.ones(w.shape, device=device)
    optimizer = ow.optim.SGD([w], lr=0.25)
    for _ in range(20):
        optimizer.step()
    assert (w.numpy() == -4).all()

steps()
assert numba_loops._layer == os.environ["NUMBA_THREADING_LAYER"], numba_loops._layer
both = [threading.Thread(target=steps) for _ in range(2)]
for one in both: one.start()
for one in both: one.join()
child = os.fork()
if child == 0:
    steps()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
loops = [one._loop for one in ow.device("cpu").backend._kernels._known.values()]
print(sum(sum(one._launch.stats.cache_hits.values()) for one in loops))
"""


def completed(program, **environment):
    names = {"OPTIRS_CPU": "numba", "OPTIRS_CPU_THREADS": "2", "NUMBA_NUM_THREADS": "2", "PYTHONWARNINGS": "error"}
    environment = {**os.environ, **names, **environment}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)


def run(program, **environment):
    done = completed(program, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def forks():
    """A system with forks."""
    if not hasattr(os, "fork"):
        missing("linux", "the system has no forks")


def test_threads_and_forked_processes_compute_the_same_on_every_layer_and_compile_once(both, forks, tmp_path):
    actual = [
        run(IN_A_PROCESS, NUMBA_THREADING_LAYER=layer, XDG_CACHE_HOME=str(tmp_path)) for layer in ("omp", "workqueue")
    ]
    assert int(actual[0]) == 0
    assert int(actual[1]) > 0


AFTER_OTHER_CODE = """
import os, signal
import numpy as np
from numba import njit, prange, threading_layer

@njit(parallel=True)
def total(x):
    found = 0.0
    for i in prange(x.size):
        found += x[i]
    return found

def forked(call):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a process that waits for threads
        call()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

def steps():
    import optirs_web as ow
    x = ow.ones((1 << 17,), device="cpu")
    assert (ow.compile(lambda: x * 2 + 1, device="cpu")().numpy() == 3).all()

total(np.ones(1 << 17))
assert threading_layer() == "omp"
forked(steps)  # which loads the module of loops in the child
from optirs_web.native_backends.cpu.numba import loops as numba_loops
assert not numba_loops._are_lost  # this process has its threads
forked(steps)
forked(lambda: forked(steps))
numba_loops._caller_lock.acquire()  # as a thread has it that is not in the child
forked(lambda: numba_loops._caller_lock.acquire(timeout=0) or os._exit(1))
"""


def test_a_fork_leaves_alone_the_threads_that_other_numba_code_started(both, forks, tmp_path):
    run(AFTER_OTHER_CODE, NUMBA_THREADING_LAYER="omp", XDG_CACHE_HOME=str(tmp_path))


FIRST_STEPS = """
import os, signal, sys, threading, time
import numpy as np
import optirs_web as ow
from optirs_web.native_backends.cpu.numba import kernels as numba_kernels, worker as numba_worker
from optirs_web.runtime.rule_kernels import RuleKernel

device = ow.device("cpu")

def kernels():
    known = device.backend._kernels._known if device.backend._kernels else {}
    return [one for kernel, one in known.items() if isinstance(kernel, RuleKernel)]

class Problem:
    def __init__(self, name="SGD", **options):
        self.w = ow.Parameter(np.ones(1 << 17, np.float32), device=device)
        self.w.grad = ow.ones(self.w.shape, device=device)
        self.optimizer = getattr(ow.optim, name)([self.w], lr=2**-16, **options)
        self.steps = 0

    def step(self):
        self.optimizer.step()
        device.synchronize()
        self.steps += 1

    def step_until_compiled(self):
        end = time.monotonic() + 120
        while not self.steps or not all(one._is_compiled for one in kernels()):
            assert time.monotonic() < end
            self.step()

    def check(self):
        assert (self.w.numpy() == 1 - self.steps * 2**-16).all()

def functions():
    loops = [one._loop for one in kernels() if one._loop is not None]
    return [one for loop in loops for one in (loop._launch, loop._part) if one is not None]

def hits():
    return sum(sum(one.stats.cache_hits.values()) for one in functions())

def misses():
    return sum(sum(one.stats.cache_misses.values()) for one in functions())

def worker_is_used():
    return numba_worker._worker._thread is not None
"""

UNTIL_COMPILED = f"""{FIRST_STEPS}
problem = Problem()
problem.step()
if not any(one._is_compiled for one in kernels()):
    assert "numba" not in sys.modules or os.environ["HAS_CODE"]
problem.step_until_compiled()
problem.check()
print(problem.steps, hits(), misses(), int(worker_is_used()))
"""


def until_compiled(folder, has_code=""):
    """Return the steps of a process until Numba runs them all, counts of loaded and compiled functions, and a flag.

    The flag is 1 if another process compiled.
    Without `has_code` the process must not load Numba before its machine code is there.
    """
    environment = {"OPTIRS_CPU": "", "NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(folder), "HAS_CODE": has_code}
    return tuple(map(int, run(UNTIL_COMPILED, **environment).split()))


def test_steps_are_numpys_while_another_process_compiles_and_numbas_from_the_first_where_that_is_on_disk(
    numba, tmp_path
):
    steps, hits, misses, is_beside = until_compiled(tmp_path)
    assert steps > 10
    assert (hits, misses, is_beside) == (2, 0, 1)
    assert until_compiled(tmp_path) == (1, 2, 0, 0)
    for path in [*tmp_path.rglob("*.nbi"), *tmp_path.rglob("*.nbc")]:
        cut(path, None)
    steps, _, misses, is_beside = until_compiled(tmp_path, "1")
    assert steps > 10
    assert (misses, is_beside) == (0, 1)
    assert until_compiled(tmp_path) == (1, 2, 0, 0)


def test_without_a_folder_that_can_be_written_each_process_compiles(numba):
    steps, hits, _, is_beside = until_compiled(os.devnull)
    assert steps > 10
    assert (hits, is_beside) == (0, 0)


def test_processes_compile_into_one_folder_at_the_same_time(numba, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        for steps, _, _, _ in pool.map(until_compiled, [tmp_path] * 3, ["1"] * 3):
            assert steps > 0
    assert until_compiled(tmp_path) == (1, 2, 0, 0)


def from_first_steps(program, folder):
    """Run a program whose kernels are compiled from its first step on, and return its output."""
    program = f"{FIRST_STEPS}\nnumba_kernels._PATIENCE = 0\n{program}"
    return completed(program, OPTIRS_CPU="", NUMBA_CACHE_DIR="", XDG_CACHE_HOME=str(folder))


THREADS_AND_FORKS = """
def steps():
    problem = Problem()
    problem.step_until_compiled()
    problem.check()

Problem().step()
Problem().step()
assert worker_is_used()
child = os.fork()
if child == 0:
    assert not worker_is_used()
    steps()
    assert worker_is_used()
    os._exit(0)
both = [threading.Thread(target=steps) for _ in range(2)]
for one in both: one.start()
for one in both: one.join()
assert os.waitpid(child, 0)[1] == 0
print(misses())
"""


def test_threads_and_a_fork_go_on_while_their_kernels_are_compiled(numba, forks, tmp_path):
    done = from_first_steps(THREADS_AND_FORKS, tmp_path)
    assert done.stdout == "0\n", done.stderr


WHILE_COMPILING = """
problem = Problem()
problem.step()
problem.step()
while numba_worker._worker._process is None: time.sleep(0.001)
print(numba_worker._worker._process.pid, flush=True)
"""


def has_ended(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_process_that_ends_while_its_kernels_are_compiled_leaves_nothing_behind(end, numba, forks, tmp_path):
    done = from_first_steps(f"{WHILE_COMPILING}\n{end}", tmp_path)
    assert done.returncode == (-signal.SIGKILL if "SIGKILL" in end else 0), done.stderr
    assert done.stderr == ""
    if not end:
        assert has_ended(int(done.stdout))
    wait_for(lambda: has_ended(int(done.stdout)))


ENDED = """
numba_worker._PROGRAM = "raise SystemExit(1)"
problem = Problem()
problem.step_until_compiled()
problem.check()
assert not hits()
"""
IDLE = """
numba_worker._IDLE = 0.05
for name in ("SGD", "Adam"):
    Problem(name).step_until_compiled()
    while worker_is_used(): time.sleep(0.01)
    assert numba_worker._worker._process is None
assert not misses()
"""


@pytest.mark.parametrize("program", [ENDED, IDLE], ids=["ended", "idle"])
def test_kernels_are_compiled_where_the_process_that_compiles_has_ended(program, numba, tmp_path):
    done = from_first_steps(program, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("executable", "starts"),
    [("/usr/bin/python3.11", True), ("C:/Python/pythonw.exe", True), ("/usr/bin/uwsgi", False), ("", False)],
)
def test_only_python_is_started_to_compile(executable, starts, numba, cache_folder, monkeypatch):
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(numba_worker, "_worker", submitted := Submitted())
    assert numba_worker.compile_in_worker(DOUBLES, "doubles", (7,)).is_done is not starts
    assert submitted.count == starts


class Submitted:
    """In the place of a worker."""

    count = 0

    def submit(self, compilation):
        self.count += 1


def test_the_log_says_once_what_numba_would_save_after_seconds_of_steps(monkeypatch, caplog):
    def missing(name):
        raise numba_cpu.PackageNotFoundError(name)

    monkeypatch.setattr(numba_cpu, "version", missing)
    monkeypatch.setattr(numba_cpu, "perf_counter", itertools.count().__next__)
    monkeypatch.setattr(health, "_said", set())
    monkeypatch.setenv("OPTIRS_CPU", "")
    device = Device(cpu.open_backend(*cpu.list_adapters("cpu")))
    w = ow.Parameter(np.ones((8, 8), np.float32), device=device)
    optimizer = ow.optim.AdamW([w])
    for count in (0, 1, 1):
        for _ in range(4):
            w.grad = ow.ones(w.shape, device=device)
            optimizer.step()
        device.synchronize()
        assert len(caplog.records) == count
    assert "pip install 'optirs-web[numba]'" in caplog.records[0].getMessage()


def test_the_log_says_nothing_of_steps_for_which_numba_has_no_loops(monkeypatch, caplog):
    monkeypatch.setattr(health, "_said", set())
    backend = numba_cpu._AdvisingBackend(*cpu.list_adapters("cpu"))
    for rule, count in ((ow.optim.Adafactor.rule, 0), (ow.optim.AdamW.rule, 1)):
        for _ in range(2):
            backend._count(UpdateKernel.of(rule, ()), numba_cpu._WORTHWHILE)
            assert len(caplog.records) == count


def test_the_device_says_what_it_runs_on(both):
    plain, forced = (device.info.description for device in both)
    assert plain.endswith(f"(NumPy {np.__version__})")
    assert forced.endswith(f"(Numba {version('numba')}, NumPy {np.__version__})")


def described(monkeypatch, **environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("optirs_web.runtime.open_devices.by_name", {})
    return ow.device("cpu")


def test_numpy_runs_everything_where_numba_is_kept_from_compiling(monkeypatch, numba):
    monkeypatch.delenv("OPTIRS_CPU", raising=False)
    assert "Numba" not in described(monkeypatch, NUMBA_DISABLE_JIT="1").info.description
    with pytest.raises(DeviceNotAvailableError, match="NUMBA_DISABLE_JIT keeps Numba from compiling: unset it"):
        described(monkeypatch, OPTIRS_CPU="numba")


def test_what_cannot_be_had_says_what_to_do(monkeypatch, both):
    with pytest.raises(DeviceNotAvailableError, match="OPTIRS_CPU must be one of numba, numpy, not 'cuda'"):
        described(monkeypatch, OPTIRS_CPU="cuda")
    monkeypatch.setenv("OPTIRS_CPU_THREADS", "0")
    with pytest.raises(ValueError, match="OPTIRS_CPU_THREADS must be 1 or more, not '0'"):
        numba_kernels.threads()

    def missing(name):
        raise numba_cpu.PackageNotFoundError(name)

    monkeypatch.setattr(numba_cpu, "version", missing)
    with pytest.raises(DeviceNotAvailableError, match=r"package numba is not installed: pip install 'numba>=0.61'"):
        described(monkeypatch, OPTIRS_CPU="numba")


ONE_STEP = """
import os
import numpy as np
import optirs_web as ow

param = ow.Parameter(np.ones(5, np.float32), device="cpu")
ow.optim.SGD([param], lr=0.1).step(grads=[np.ones(5, np.float32)])
print(sorted({"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere OpenMP is not GNU's, whose settings are shown here")
@pytest.mark.parametrize("policy", [None, "active"])
def test_threads_of_openmp_soon_sleep_unless_the_environment_says_otherwise(numba, policy):
    environment = {**os.environ, "OPTIRS_CPU": "numba", "OMP_DISPLAY_ENV": "verbose"}
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        environment.pop(name, None)
    if policy:
        environment["OMP_WAIT_POLICY"] = policy
    done = subprocess.run([sys.executable, "-c", ONE_STEP], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ("['OMP_WAIT_POLICY']" if policy else "[]")
    assert ("GOMP_SPINCOUNT = '2000'" in done.stderr) == (policy is None)
