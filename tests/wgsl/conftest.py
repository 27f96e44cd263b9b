"""Fixtures of the tests of the WGSL front end: the kernels next to this file, and validation by naga."""

from pathlib import Path

import pytest
from requirements import vulkan_device

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
def gpu():
    """A wgpu device on Vulkan; a skip, or a failure where OPTIRS_REQUIRE lists vulkan."""
    return vulkan_device()


@pytest.fixture(scope="session")
def naga(gpu):
    """`naga(text)`: what wgpu says against a shader; None if it takes it."""
    import wgpu

    def opinion(text):
        try:
            gpu.create_shader_module(code=text)
        except wgpu.GPUError as error:
            return str(error)
        return None

    return opinion


@pytest.fixture(scope="session")
def run(gpu):
    """`run(text)`: what `main` leaves in its only buffer of 64 numbers, one workgroup having run."""
    import wgpu

    def once(text):
        compute = {"module": gpu.create_shader_module(code=text), "entry_point": "main"}
        pipeline = gpu.create_compute_pipeline(layout="auto", compute=compute)
        buffer = gpu.create_buffer(size=256, usage=wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC)
        entries = [{"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": 256}}]
        group = gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
        encoder = gpu.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        compute_pass.set_pipeline(pipeline)
        compute_pass.set_bind_group(0, group)
        compute_pass.dispatch_workgroups(1)
        compute_pass.end()
        gpu.queue.submit([encoder.finish()])
        return bytes(gpu.queue.read_buffer(buffer))

    return once
