"""What the tests may find missing: a named skip, or a failure where OPTIRS_REQUIRE (`vulkan,cpu,torch`) lists it."""

import os
from importlib.util import find_spec

import pytest

__all__ = ["missing", "released", "required", "vulkan_device"]


def required():
    """The names in OPTIRS_REQUIRE."""
    return {name.strip() for name in os.environ.get("OPTIRS_REQUIRE", "").split(",")} - {""}


def missing(name, reason):
    """Skip the test, or fail it where `name` is required."""
    if name in required():
        pytest.fail(f"{name} is in OPTIRS_REQUIRE and is missing: {reason}", pytrace=False)
    pytest.skip(f"{name}: {reason}")


def released(package, module, *, is_needed=False):
    """Whether the authors' code is there, a package of the index; if it is needed and is not, a skip or a failure."""
    is_there = find_spec(module.partition(".")[0]) is not None
    if is_needed and not is_there:
        missing("released", f"{package} is not installed")
    return is_there


def vulkan_device():
    """A device of wgpu's own, of the first Vulkan adapter: what has an opinion of shaders without our runtime."""
    try:
        import wgpu

        adapters = [one for one in wgpu.gpu.enumerate_adapters_sync() if one.info["backend_type"] == "Vulkan"]
    except (ImportError, RuntimeError, OSError) as error:
        return missing("vulkan", repr(error))
    if not adapters:
        return missing("vulkan", "no Vulkan adapter")
    wanted = [name for name in ("shader-f16", "subgroup") if name in adapters[0].features]
    return adapters[0].request_device_sync(required_features=wanted)
