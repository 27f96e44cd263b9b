"""The devices on which the tests run, and their fixtures.

A test that takes `device` runs once for each name in `DEVICES`, one that takes `numerics` also in the browser and for
each name in OPTIRS_TEST_TARGETS, as `make test-targets` sets it: what the library does is tested on two kinds of
devices, what it computes on all. For a name in OPTIRS_TEST_BRIEFLY these are the operations and, of each optimizer, its
first row: where every kernel is compiled for a tenth of a second, CI has no time for more.
"""

import gc
import importlib
import json
import os
import signal
import warnings
from collections import Counter
from functools import cached_property, partial
from pathlib import Path
from typing import Any

# Set before NumPy is loaded: on products as small as the tests', BLAS threads mostly wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # libtpu, which also compiles for TPUs elsewhere, would look for one
os.environ["OPTIRS_TUNE"] = "0"  # what this user's searches have found is not what is tested
os.environ.setdefault("OPTIRS_CPU", "numpy")  # what Numba compiles has tests of its own
if os.environ.get("OPTIRS_REQUIRE"):  # the library's "auto" takes what it names; the processor is always there
    os.environ["OPTIRS_REQUIRE"] += ",cpu"

import numerics as numerical_cases
import numpy as np
import pytest
import software_cuda
from chromium import CRASH, browser, browser_python, close_crashed_pages, page, screenshot
from dawn_device import dawn_device
from hypothesis import settings
from numba_device import cpu_device
from requirements import BASE, EXTRAS, check_declared, missing, named, selection, source_of

__all__ = ["browser", "browser_python", "page", "screenshot"]

DEVICES = os.environ.get("OPTIRS_TEST_DEVICES", "cpu,vulkan").split(",")
TARGETS = list(filter(None, os.environ.get("OPTIRS_TEST_TARGETS", "").split(",")))
BRIEFLY = set(filter(None, os.environ.get("OPTIRS_TEST_BRIEFLY", "").split(","))) - set(TARGETS)
BROWSER = ["webgpu"]
OPENED_OTHERWISE = {"numba": partial(cpu_device, "numba"), "dawn": dawn_device}
LIBRARIES = ["torch", "optax", "accelerate", "onnx", "numba"]
RESULTS = Path(__file__).parent.parent / "build" / "optimizers.json"

# A software GPU on a busy machine is slow in ways that say nothing about the code.
settings.register_profile("optirs", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("optirs")


def pytest_addoption(parser):
    parser.addoption(
        "--part", choices=["first", "rest"], help="what `make test` runs, or what only `make test-all` does"
    )


def pytest_configure(config):
    selection.part = config.getoption("part") or ""
    # What a shell runs in the background ignores Ctrl-C, and so would the programs that the tests send it to.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A requirement that no test looks at would pass in silence.
    known = EXTRAS | BASE.keys()
    unknown = named() - known
    if unknown:
        names = ", ".join(sorted(known))
        raise pytest.UsageError(f"OPTIRS_REQUIRE names {', '.join(sorted(unknown))}; the tests know {names}")


@pytest.hookimpl(trylast=True)  # what -k and -m leave
def pytest_collection_modifyitems(config, items):
    taken = [item for item in items if (_numerics_of(item) not in BRIEFLY or _is_brief(item)) and selection.takes(item)]
    config.hook.pytest_deselected(items=list(set(items).difference(taken)))
    items[:] = taken
    # Playwright's event loop runs in this thread from the first browser test on, and there is only one in a thread.
    # Those of whole pages take longest, so they are not left for the end.
    items.sort(key=lambda item: 1 if _is_of_a_page(item.nodeid) else 2 * _uses_browser(item))
    # pytest-rerunfailures takes 40 ms for each test that it could run again: the socket that it asks waits for more.
    for item in items:
        if _is_of_a_page(item.nodeid) or _uses_browser(item):
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=CRASH))


def _numerics_of(item):
    return item.callspec.params.get("numerics") if hasattr(item, "callspec") else None


def _is_brief(item):
    params = item.callspec.params
    if "library" in params:
        return params["library"] == "numpy"
    return params.get("case") in numerical_cases.FIRST_ROWS.values()


def _is_of_a_page(nodeid):
    return nodeid.startswith("tests/browser/")


def _uses_browser(item):
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return "browser" in item.fixturenames or not {params.get("numerics"), params.get("compute")}.isdisjoint(BROWSER)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    selection.running = item
    yield
    selection.running = None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Processes take tests in large parts, which share what they set up, but those of pages one or two at a time."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScheduling

    class Scheduling(LoadScheduling):
        def check_schedule(self, node, duration=0.0):
            first = self.pending[0] if self.pending else 0
            ahead = next((number for number in self._pages if number >= first), None)
            self.maxschedchunk = len(self.collection) if ahead is None else max(ahead - first, 2)
            # After a test of a second a process is not given more while it has two.
            super().check_schedule(node, 1.0 if ahead == first else duration)

        @cached_property
        def _pages(self):
            return [number for number, nodeid in enumerate(self.collection) if _is_of_a_page(nodeid)]

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def open_device():
    """`open_device(name)`: the device, opened once for all tests; a skip or a failure where there is none."""
    import optirs_web
    from optirs_web.errors import DeviceNotAvailableError

    opened = {}

    def open_once(name):
        check_declared(name)
        if name not in opened:
            try:
                with software_cuda.shown(name):
                    opened[name] = OPENED_OTHERWISE.get(name, partial(optirs_web.device, name))()
            except DeviceNotAvailableError as error:
                opened[name] = error
        if isinstance(opened[name], DeviceNotAvailableError):
            missing(name, str(opened[name]))
        return opened[name]

    return open_once


@pytest.fixture(scope="module", autouse=True)
def passes_over_what_stays():
    """A full collection does not look again through what earlier modules have left for good: shaders, kernels, torch.

    The library collects too, whenever a device has no room, and with millions of such objects that takes a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(params=DEVICES)
def device(request, open_device):
    """Each device that the tests run on."""
    return open_device(request.param)


@pytest.fixture
def limited(device):
    """A function that sets a limit of so many bytes above what is live; lifted afterwards."""
    gc.collect()
    device.trim()
    yield lambda nbytes: device.set_memory_limit(device.memory_stats().live_bytes + nbytes)
    device.set_memory_limit(None)


@pytest.fixture(params=[*DEVICES, *TARGETS, *sorted(BRIEFLY), *BROWSER])
def numerics(request):
    """`numerics(function, *arguments)`: a function of `tests/numerics.py` on each device, the browser's among them.

    Arrays go in and come out as NumPy's.
    """
    if request.param in BROWSER:
        python = request.getfixturevalue("browser_python")
        return lambda function, *arguments: python.call(function, arguments, as_array)
    device = request.getfixturevalue("open_device")(request.param)
    return lambda function, *arguments: _with_arrays(getattr(numerical_cases, function)(*arguments, device=device))


def as_array(view, shape):
    """NumPy's array of a typed memoryview."""
    return np.frombuffer(view, {"f": np.float32, "i": np.int32, "I": np.uint32}[view.format]).reshape(shape)


def _with_arrays(value):
    if isinstance(value, dict):
        return {key: _with_arrays(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_arrays(item) for item in value]
    return value if isinstance(value, float | int) else np.asarray(value)


_numerical = Counter()
_errors: dict[str, dict[str, dict[str, Any]]] = {}


@pytest.fixture
def note_error(request):
    """`note_error(case, error)`: the case passed with that error; what the table of optimizers is made of."""

    def note(case, error):
        source = source_of(case)
        passed = {"device": request.node.callspec.params["numerics"], "error": error}
        passed["source"] = source if source in LIBRARIES else "reference"
        request.node.user_properties.append(("error", (case.optimizer, passed)))

    return note


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.excinfo is not None:
        close_crashed_pages(item)
    params = item.callspec.params if hasattr(item, "callspec") else {}
    where = params.get("numerics", params.get("compute"))
    if where:
        report.user_properties.append(("numerical", where))


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        for name, value in report.user_properties:
            if name == "numerical":
                _numerical[value] += 1
            elif name == "error":
                _count(*value)


def _count(optimizer, passed):
    result = _errors.setdefault(optimizer, {}).setdefault(passed["device"], {"cases": 0, "error": 0.0, "source": []})
    result["cases"] += 1
    result["error"] = max(result["error"], passed["error"])
    result["source"] = sorted({*result["source"], passed["source"]})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """A process of pytest-xdist has ended: each has collected, and so counted, all tests."""
    selection.left_out = Counter(getattr(node, "workeroutput", {}).get("left out"))


def pytest_sessionfinish(session):
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and (selection.left_out or selection.part == "rest"):
        session.exitstatus = pytest.ExitCode.OK  # what -k names is all in the other part
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = dict(selection.left_out)
    if _errors and not hasattr(session.config, "workerinput"):  # the process that has the reports of all others
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(dict(sorted(_errors.items())), indent=1) + "\n", "utf-8")


def pytest_terminal_summary(terminalreporter):
    if _numerical:
        counts = ", ".join(f"{count} on {device}" for device, count in sorted(_numerical.items()))
        terminalreporter.write_line(f"numerical cases passed: {counts}")
    absent = Counter(skipped_for(report) for report in terminalreporter.stats.get("skipped", []))
    for name in BASE.keys() & absent.keys():
        terminalreporter.write_line(f"{absent[name]:,} tests need {name}, which is not here: {BASE[name]}")
    if selection.left_out:
        terminalreporter.write_line(f"left to `make test-all`: {selection.left_out.total():,} tests, of which")
        for reason, count in selection.left_out.most_common():
            terminalreporter.write_line(f"{count:8,} {reason}")


def skipped_for(report):
    """The name that `missing` was called with."""
    return report.longrepr[2].removeprefix("Skipped: ").partition(":")[0]


@pytest.fixture(scope="session")
def requires():
    """`torch = requires("torch")`: the module; a skip or a failure where it is not installed."""

    def import_or_skip(name):
        assert name in LIBRARIES, f"add {name} to LIBRARIES in tests/conftest.py"
        check_declared(name)
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            return missing(name, str(error))
        if name == "torch":
            module.set_num_threads(1)  # its threads would wait for each other on small arrays
        return module

    return import_or_skip


def _device_fixture(name):
    """The device of that name; a test that takes it says so, see `requirements.needs_of`."""
    return pytest.fixture(lambda open_device: open_device(name), scope="session", name=name)


def _library_fixture(name):
    """The module of that name, likewise."""
    return pytest.fixture(lambda requires: requires(name), scope="session", name=name)


cuda, dawn, opencl, xla = map(_device_fixture, ("cuda", "dawn", "opencl", "xla"))
accelerate, numba, onnx, optax = map(_library_fixture, ("accelerate", "numba", "onnx", "optax"))


@pytest.fixture(scope="session")
def nvrtc():
    """NVIDIA's compiler."""
    from optirs_web.errors import DeviceNotAvailableError
    from optirs_web.runtime import nvrtc

    try:
        return nvrtc.version()
    except DeviceNotAvailableError as error:
        return missing("nvrtc", str(error))


@pytest.fixture
def torch(requires):
    """torch, silent about schedulers that step before their optimizer."""
    module = requires("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield module
