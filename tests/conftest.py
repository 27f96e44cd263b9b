"""Which devices the tests run on. A test that takes `device` runs once for each name in `DEVICES`."""

import importlib
import os

import pytest
from hypothesis import settings
from requirements import missing, required

DEVICES = ["cpu", "vulkan"]
LIBRARIES = ["torch"]

# A software GPU on a busy machine is slow in ways that say nothing about the code.
settings.register_profile("optirs", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("optirs")


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
