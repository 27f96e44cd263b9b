"""The needs of tests besides the clone, and the tests of a run: selected by what they need, never by what is installed.

`make test` runs `pytest --part first`: the tests that need no more than BASE and are neither `slow` nor open a page;
those pages that are marked `first` it opens. `make test-all` runs the others too, `--part rest`, and there a skip for
what it installs is a failure. OPTIRS_REQUIRE names more for the first part; a skip for what it names is a failure.
"""

import os
import shutil
import sys
from collections import Counter
from importlib.util import find_spec

import pytest

__all__ = [
    "BASE",
    "EXTRAS",
    "by_source",
    "check_declared",
    "each_needing",
    "missing",
    "released",
    "required",
    "selection",
    "source_of",
    "vulkan_device",
]

BASE = {
    "cpu": "it is always there",
    "vulkan": "sh scripts/setup_gpu.sh .venv/bin/python says what to install",
    "webgpu": "Chromium and the pages: make setup, with npm, says what to install",
    "naga": "one of the pages' packages: make setup, with npm",
    "software-cuda": "what only a driver in software does is tested where there is none of NVIDIA's",
    "linux": "the tests of forks, named pipes and HOME run on Linux",
}
"""What `make test` uses: name, and how it is had where it is missing."""

EXTRAS = {
    *("torch", "optax", "accelerate", "onnx", "released", "perfetto", "pdoc", "tensorflow", "transformers"),
    *("numba", "opencl", "opencl-subgroups", "xla", "libtpu", "nvrtc", "cuda", "g++", "shader-compilers", "jax-js"),
    "dawn",
}
"""What a test has to declare; CONTRIBUTING.md says what each is."""

IMPLIED = {
    "cuda": {"nvrtc", "g++"},
    "released": {"torch"},
    "transformers": {"torch", "accelerate"},
    "opencl-subgroups": {"opencl"},
}
BY_HAND = {"tensorflow", "transformers", "opencl-subgroups"}
"""What `make test-all` does not install: too large for what it tests, or a driver that no package has."""

OF_THE_SYSTEM = {"vulkan", "webgpu", "opencl", "g++", "naga", "shader-compilers", "cuda", "jax-js", "dawn"}
"""What takes packages of the system besides: apt-get installs them for root on Debian and Ubuntu."""


class Selection:
    """The part that runs, the test that is running, and the number of tests left out for each reason."""

    def __init__(self):
        self.part = ""
        self.running = None
        self.left_out = Counter()

    def takes(self, item):
        """Return True if the part has this test; tests that the first part leaves out are counted."""
        reasons = reasons_of(item)
        if self.part == "first" and reasons:
            self.left_out[min(reasons)] += 1
        return not self.part or (self.part == "first") == (not reasons)


selection = Selection()


def needs_of(item):
    """Return the needs of a test: by `@pytest.mark.needs("torch")`, a fixture of that name, or a device parameter."""
    result = {name for mark in item.iter_markers("needs") for name in mark.args}
    result |= EXTRAS & set(item.fixturenames)
    result |= {"webgpu"} if "browser" in item.fixturenames else set()
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return result | {params[name] for name in ("numerics", "compute", "device") if isinstance(params.get(name), str)}


def reasons_of(item):
    """Why a test is not of the first part; nothing where it is."""
    needs = needs_of(item)
    reasons = {f"need {name}" for name in (needs & EXTRAS) - named()}
    if "webgpu" in needs - named() and item.get_closest_marker("first") is None:
        reasons.add("open a page")
    if item.get_closest_marker("slow") is not None:
        reasons.add("take long")
    return reasons


def named():
    """The names in OPTIRS_REQUIRE."""
    return {name.strip() for name in os.environ.get("OPTIRS_REQUIRE", "").split(",")} - {""}


def required():
    """Return what must be installed: the names in OPTIRS_REQUIRE and, in the second part, those of `make test-all`."""
    return named() | (expected() if selection.part == "rest" else set())


def expected():
    """Return the names that `make test-all` installs; in CI, all of them."""
    result = (EXTRAS | BASE.keys()) - BY_HAND
    if "CI" in os.environ:
        return result
    result.discard("software-cuda")  # NVIDIA's own driver takes its place
    if sys.platform != "linux":
        result.discard("linux")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return result if is_root and shutil.which("apt-get") else result - OF_THE_SYSTEM


def source_of(case):
    """Return the source of an optimizer's case: "torch", "optax", or a module of `tests/optimizer_references`."""
    return case.source.partition(".")[0].removesuffix("_twins")


def by_source(cases):
    """Cases of a table by their names, with the library that each is compared with as what it needs."""
    return [
        pytest.param(case, id=case.name, marks=pytest.mark.needs(source_of(case)) if source_of(case) in EXTRAS else ())
        for case in cases
    ]


def each_needing(*names):
    """Parameters that need what they name."""
    return [pytest.param(name, marks=pytest.mark.needs(name)) for name in names]


def missing(name, reason):
    """Skip the test, or fail it where `name` is required."""
    check_declared(name)
    if name in required():
        pytest.fail(f"{name} is required and is missing: {reason}", pytrace=False)
    pytest.skip(f"{name}: {reason}")


def check_declared(name):
    """Fail a test that asks for what it does not declare, whether that is installed or not."""
    if name not in EXTRAS or selection.running is None:
        return
    declared = needs_of(selection.running)
    if name not in declared.union(*(IMPLIED.get(need, ()) for need in declared)):
        pytest.fail(f'this test needs {name} and has to say so: @pytest.mark.needs("{name}")', pytrace=False)


def released(package, module, *, is_needed=False):
    """Return True if a package of the authors' code is installed; skip or fail if it is needed and is not."""
    is_there = find_spec(module.partition(".")[0]) is not None
    if is_needed and not is_there:
        missing("released", f"{package} is not installed")
    return is_there


def vulkan_device():
    """A device of wgpu's own, of the first Vulkan adapter: what has an opinion of shaders without our runtime."""
    try:
        import wgpu

        adapters = [
            adapter for adapter in wgpu.gpu.enumerate_adapters_sync() if adapter.info["backend_type"] == "Vulkan"
        ]
    except (ImportError, RuntimeError, OSError) as error:
        return missing("vulkan", repr(error))
    if not adapters:
        return missing("vulkan", "no Vulkan adapter")
    wanted = [name for name in ("shader-f16", "subgroup") if name in adapters[0].features]
    return adapters[0].request_device_sync(required_features=wanted)
