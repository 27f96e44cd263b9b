"""What the tests of the WGSL front end share: the kernels beside this file, and naga's opinion."""

import os
from pathlib import Path

import pytest

from optirs_web.wgsl import parse

HERE = Path(__file__).parent
SHADERS = HERE.parents[1] / "shaders"


@pytest.fixture(scope="session")
def kernels():
    """The kernels under tests/wgsl/kernels by name, as text."""
    return {path.stem: path.read_text() for path in sorted((HERE / "kernels").glob("*.wgsl"))}


@pytest.fixture(scope="session")
def shaders():
    """Every shader of the package by its path, as text."""
    return {str(path.relative_to(SHADERS)): path.read_text() for path in sorted(SHADERS.rglob("*.wgsl"))}


@pytest.fixture
def module():
    """`module(text)`: the text, parsed as the file t.wgsl."""
    return lambda text: parse(text, "t.wgsl")


@pytest.fixture(scope="session")
def naga():
    """`naga(text)`: what wgpu says against a shader; None if it takes it."""
    reason = "no Vulkan adapter for wgpu"
    try:
        import wgpu

        adapters = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] == "Vulkan"]
        if adapters:
            wanted = [name for name in ("shader-f16", "subgroup") if name in adapters[0].features]
            device = adapters[0].request_device_sync(required_features=wanted)
    except (ImportError, RuntimeError, OSError) as error:
        adapters, reason = [], f"{reason}: {error}"
    if not adapters:
        if "vulkan" in os.environ.get("OPTIRS_REQUIRE", ""):
            pytest.fail(f"vulkan is in OPTIRS_REQUIRE, and there is {reason}", pytrace=False)
        pytest.skip(reason)

    def opinion(text):
        try:
            device.create_shader_module(code=text)
        except wgpu.GPUError as error:
            return str(error)
        return None

    return opinion
