"""Which devices the tests run on, and when a missing one is a failure.

A test that takes `device` runs once for each name in `DEVICES`. What is missing here is a named skip, unless
the environment variable OPTIRS_REQUIRE (`vulkan,cpu,torch`) lists it: then it is a failure.
"""

import importlib
import os

import pytest
from hypothesis import settings

DEVICES = ["cpu", "vulkan"]
LIBRARIES = ["torch"]

# A software GPU on a busy machine is slow in ways that say nothing about the code.
settings.register_profile("optirs", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("optirs")


def required():
    """The names in OPTIRS_REQUIRE."""
    return {name.strip() for name in os.environ.get("OPTIRS_REQUIRE", "").split(",")} - {""}


def missing(name, reason):
    """Skip the test, or fail it where `name` is required."""
    if name in required():
        pytest.fail(f"{name} is in OPTIRS_REQUIRE and is missing: {reason}", pytrace=False)
    pytest.skip(f"{name}: {reason}")


def pytest_configure(config):
    # A requirement that no test looks at would pass in silence.
    unknown = required() - {*DEVICES, *LIBRARIES}
    if unknown:
        names = ", ".join([*DEVICES, *LIBRARIES])
        raise pytest.UsageError(f"OPTIRS_REQUIRE names {', '.join(sorted(unknown))}; the tests know {names}")


@pytest.fixture(scope="session")
def open_device():
    """`open_device(name)`: the device, opened once for all tests; a skip or a failure where there is none."""
    import optirs_web
    from optirs_web.errors import DeviceNotAvailableError

    opened = {}

    def open_once(name):
        if name not in opened:
            try:
                opened[name] = optirs_web.device(name)
            except DeviceNotAvailableError as error:
                opened[name] = error
        if isinstance(opened[name], DeviceNotAvailableError):
            missing(name, str(opened[name]))
        return opened[name]

    return open_once


@pytest.fixture(params=DEVICES)
def device(request, open_device):
    """Each device that the tests run on."""
    return open_device(request.param)


@pytest.fixture(scope="session")
def requires():
    """`torch = requires("torch")`: the module; a skip or a failure where it is not installed."""

    def import_or_skip(name):
        assert name in LIBRARIES, f"add {name} to LIBRARIES in tests/conftest.py"
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            return missing(name, str(error))
        if name == "torch":
            module.set_num_threads(1)  # its threads would wait for each other on small arrays
        return module

    return import_or_skip
