"""The device `cpu` with Numba: the bits of NumPy's, in threads and forks, compiled when it pays and kept."""

import dataclasses
import os
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest
from numba_device import cpu_device
from requirements import missing

import optirs_web as ow
from optirs_web.errors import DeviceNotAvailableError
from optirs_web.native_backends import numba_cpu, numba_kernels
from optirs_web.native_backends.numba_loops import Loop, loop_of
from optirs_web.optim import transforms
from optirs_web.runtime.kernels import elementwise
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
        for number, one in enumerate(w):
            grad = random.standard_normal(one.shape).astype(np.float32)
            one.grad = None if step and number == 2 else ow.tensor(grad, device=device)
        optimizer.step()
    state = optimizer.state_dict()["state"]
    return [one.numpy() for one in w] + [np.asarray(v) for one in state.values() for v in one.values()]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AdamW", {"amsgrad": True, "maximize": True}),
        ("AdamW", {"state_dtype": "bfloat16", "skip_nonfinite": True}),
        *(("AdamW", {"param_dtype": "bfloat16", "rounding": one}) for one in ("master", "stochastic", "kahan")),
        (
            "AdamW",
            {"transforms": [transforms.clip_by_value(0.5), transforms.add_decayed_weights(0.1)], "maximize": True},
        ),
    ],
    ids=["amsgrad", "bfloat16", "master", "stochastic", "kahan", "transforms"],
)
def test_steps_have_the_bits_of_numpys(name, options, both):
    for one, other in zip(*(trained(device, name, options) for device in both), strict=True):
        np.testing.assert_array_equal(one, other)


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
    for one, other in zip(*(trained(device, name, options) for device in both), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


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
    return [one.numpy() for one in (step(), hooked(), x + column, x.T > 0, x.exp(), ow.arange(7, device=device))]


def test_operations_have_the_bits_of_numpys(both):
    for one, other in zip(*map(computed, both), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_kernel_is_numpys_until_that_has_spent_much_on_it(both, monkeypatch):
    kernels = numba_kernels.NumbaKernels(at_once=False)
    relu = elementwise("relu", "relu", ("tensor",), 0)
    x, y = np.array([-1, 2], np.float32).view(np.uint8), np.zeros(8, np.uint8)
    kept = kernels.bind(relu, [x, y], relu.pack((2,)))
    kept()
    candidate = kernels._known[relu]
    assert 0 < candidate.account.seconds < numba_kernels._PATIENCE
    assert candidate._loop is None
    candidate.account.seconds = 0
    for call in (kept, kernels.bind(relu, [x, y], relu.pack((2,)))):
        y[:] = 7
        call()
        assert y.view(np.float32).tolist() == [0, 2]
    assert candidate._is_compiled


def test_what_goes_beyond_its_arrays_is_an_error(both):
    relu = elementwise("relu", "relu", ("tensor",), 0)
    short, long = np.zeros(8, np.uint8), np.zeros(16, np.uint8)
    call = numba_kernels.NumbaKernels(at_once=True).bind(relu, [short, long], relu.pack((4,)))
    with pytest.raises(ValueError, match="broadcast"):
        call()


def test_what_numba_refuses_stays_numpys(numba, caplog, tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    loops = Loops("from numba import njit\n\n@njit\ndef part(*given):\n    return given.none\n\nlaunch = part\n", ())
    relu = elementwise("relu", "relu", ("tensor",), 0)
    x, y = np.array([-1, 2], np.float32).view(np.uint8), np.zeros(8, np.uint8)
    candidate = numba_kernels._Candidate(relu, numba_kernels._Account(0), strict=False)
    candidate._loop = loop_of(loops, "refused")
    first, second = (candidate.bind([x, y], relu.pack((2,))) for _ in range(2))
    for call in (first, first, second):
        y[:] = 7
        call()
        assert y.view(np.float32).tolist() == [0, 2]
    assert not candidate._is_compiled
    assert [one.getMessage().partition(":")[0] for one in caplog.records] == [
        "Numba refuses 'relu', which stays NumPy's on cpu"
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
def test_what_numba_keeps_is_compiled_again_where_a_file_is_damaged_or_anothers(
    kind, damage, numba, tmp_path, monkeypatch
):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def computed():
        loops = [Loop(one, name) for one, name in ((DOUBLES, "doubles"), (TRIPLES, "triples"))]
        return [one.bound((7,), 1, 1)() for one in loops], [sum(one._launch.stats.cache_hits.values()) for one in loops]

    assert computed() == ([14, 21], [0, 0])
    assert computed() == ([14, 21], [1, 1])
    doubles, triples = (next(tmp_path.rglob(f"{name}*.{kind}")) for name in ("doubles", "triples"))
    damage(doubles, triples)
    assert computed() == ([14, 21], [0, 1])
    assert computed() == ([14, 21], [1, 1])


IN_A_PROCESS = """
import os, threading
import numpy as np
import optirs_web as ow
from optirs_web.native_backends import numba_kernels, numba_loops

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


def run(program, **environment):
    names = {"OPTIRS_CPU": "numba", "OPTIRS_CPU_THREADS": "2", "NUMBA_NUM_THREADS": "2", "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **names, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def forks():
    """A system with forks."""
    if not hasattr(os, "fork"):
        missing("linux", "the system has no forks")


def test_threads_and_forked_processes_compute_the_same_on_every_layer_and_compile_once(both, forks, tmp_path):
    found = [run(IN_A_PROCESS, NUMBA_THREADING_LAYER=one, XDG_CACHE_HOME=str(tmp_path)) for one in ("omp", "workqueue")]
    assert int(found[0]) == 0
    assert int(found[1]) > 0


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
from optirs_web.native_backends import numba_loops
assert not numba_loops._are_lost  # this process has its threads
forked(steps)
forked(lambda: forked(steps))
numba_loops._one_caller.acquire()  # as a thread has it that is not in the child
forked(lambda: numba_loops._one_caller.acquire(timeout=0) or os._exit(1))
"""


def test_a_fork_leaves_alone_the_threads_that_other_numba_code_started(both, forks, tmp_path):
    run(AFTER_OTHER_CODE, NUMBA_THREADING_LAYER="omp", XDG_CACHE_HOME=str(tmp_path))


def test_the_device_says_what_it_runs_on(both):
    plain, forced = (one.info.description for one in both)
    assert plain.endswith(f"(NumPy {np.__version__})")
    assert forced.endswith(f"(Numba {version('numba')}, NumPy {np.__version__})")


def described(monkeypatch, **environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("optirs_web.runtime.registry._opened", {})
    return ow.device("cpu")


def test_what_cannot_be_had_says_what_to_do(monkeypatch, both):
    with pytest.raises(DeviceNotAvailableError, match="OPTIRS_CPU is one of numba, numpy, not 'cuda'"):
        described(monkeypatch, OPTIRS_CPU="cuda")
    monkeypatch.setenv("OPTIRS_CPU_THREADS", "0")
    with pytest.raises(ValueError, match="OPTIRS_CPU_THREADS is a number of threads, 1 or more, not '0'"):
        numba_kernels.threads()

    def missing(name):
        raise numba_cpu.PackageNotFoundError(name)

    monkeypatch.setattr(numba_cpu, "version", missing)
    with pytest.raises(DeviceNotAvailableError, match=r"package numba is not installed: pip install 'numba>=0.61'"):
        described(monkeypatch, OPTIRS_CPU="numba")
