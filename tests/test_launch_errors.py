"""Operations that fail after they were enqueued: what is raised, where, whom it names, what is done."""

import asyncio
import re
from functools import cached_property

import numpy as np
import pytest
from processes import run_python

import optirs_web as ow
from optirs_web.errors import LaunchError, OptirsError, ShaderError
from optirs_web.runtime.buffer import View
from optirs_web.runtime.kernels import Binding, Kernel
from optirs_web.wgsl import check, parse


class Written(Kernel):
    """A kernel of a text."""

    parameters = ()

    @cached_property
    def module(self):
        module = parse(self.wgsl(), self.name)
        check(module)
        return module


class Aliased(Written):
    """Read and write are to be different memory; a GPU refuses to run it on the same."""

    name = "aliased"
    bindings = (Binding("x", "array<f32>", False), Binding("y", "array<f32>", True))

    def wgsl(self, host="naga"):
        return (
            "@group(0) @binding(0) var<storage, read> x: array<f32>;\n"
            "@group(0) @binding(1) var<storage, read_write> y: array<f32>;\n"
            "@compute @workgroup_size(1) fn main() { y[0] = x[0] + 1.0; }"
        )


class TooWide(Written):
    """A workgroup larger than any device has."""

    name = "too_wide"
    bindings = (Binding("x", "array<f32>", True),)

    def wgsl(self, host="naga"):
        return (
            "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n"
            "@compute @workgroup_size(65536) fn main() { x[0] = 1.0; }"
        )


@pytest.fixture
def fail(device):
    """`fail(into)` enqueues what fails when it runs, and would have written `into`; it returns its name."""
    with device.record(fuses=False) as program:
        _ = ow.ones((64,), device=device).exp()
    launch = program.launches[-1]

    def enqueue(into):
        if device.name != "cpu":
            device.dispatch(Aliased(), [into.view, into.view], 1)
            return "aliased"
        too_short = View(into.view.buffer, 0, 16)
        device.dispatch(launch.kernel, [too_short, into.view], launch.grid[:2], launch.parameters)
        return launch.kernel.name

    return enqueue


WAITS = {
    "item": lambda x: x[0].item(),
    "numpy": lambda x: x.numpy(),
    "tolist": lambda x: x.tolist(),
    "read": lambda x: x.read(),
    "synchronize": lambda x: x.device.synchronize(),
    "item_async": lambda x: asyncio.run(_awaited(lambda: x[0].item_async())),
    "numpy_async": lambda x: asyncio.run(_awaited(x.numpy_async)),
    "tolist_async": lambda x: asyncio.run(_awaited(x.tolist_async)),
    "read_async": lambda x: asyncio.run(_awaited(x.read_async)),
    "synchronize_async": lambda x: asyncio.run(_awaited(x.device.synchronize_async)),
}


async def _awaited(call):
    return await call()


@pytest.mark.parametrize("wait", WAITS)
def test_the_next_call_that_waits_raises_and_names_the_operation(device, fail, wait):
    other, x = ow.ones((64,), device=device), ow.ones((64,), device=device)
    device.synchronize()
    name = fail(x)
    with pytest.raises(LaunchError, match=f"the operation '{name}' failed on device '{device.name}': ") as caught:
        WAITS[wait](other)
    assert (caught.value.operation, caught.value.step) == (name, None)
    WAITS[wait](other)  # it is told once
    assert (other + 1.0).tolist() == [2.0] * 64


def test_what_does_not_need_the_result_is_done_and_the_rest_is_counted(device, fail):
    x, w = ow.ones((64,), device=device), ow.Parameter(np.ones(64, np.float32), device=device)
    optimizer = ow.optim.SGD([w], lr=1.0)
    optimizer.step(grads=[np.zeros(64, np.float32)])
    device.synchronize()
    before = w * 2.0
    gradient = ow.ones((64,), device=device)
    fail(gradient)
    behind = w + 3.0
    w.grad = gradient * 1.0
    optimizer.step()
    with pytest.raises(LaunchError, match=r"(\d+) operations that need its result did not run") as caught:
        device.synchronize()
    assert int(re.search(r"(\d+) operations", str(caught.value))[1]) >= 2  # the product, and the update
    assert before.tolist() == [2.0] * 64
    assert behind.tolist() == [4.0] * 64
    assert w.tolist() == [1.0] * 64
    assert x.tolist() == [1.0] * 64


def test_of_a_recorded_program_it_names_the_step(device, fail):
    x, y = ow.ones((64,), device=device), ow.ones((64,), device=device)
    with device.record(fuses=False) as program:
        first = x + 1.0
        name = fail(y)
        kept = first.exp()
    device.replay(program)
    with pytest.raises(LaunchError, match=r"\(step 2 of 3 of a recorded program\)") as caught:
        x.tolist()
    assert (caught.value.operation, caught.value.step) == (name, 2)
    assert kept.tolist() == pytest.approx([np.exp(2.0)] * 64)
    assert first.tolist() == [2.0] * 64


def test_memory_that_a_step_has_bound_and_that_is_freed_is_an_error_of_ours(open_device):
    device = open_device("vulkan")
    w = ow.Parameter([1.0, 2.0], device=device)
    optimizer = ow.optim.SGD([w], lr=0.1)

    def train_step(x):
        optimizer.zero_grad()
        loss = (w * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step, device=device)
    assert step([1.0, 1.0]).item() == 3.0
    w.view.buffer.release()
    device.memory_stats()  # takes it back
    with pytest.raises(LaunchError, match=r"of a recorded program\) failed .* refers to freed memory") as caught:
        step([1.0, 1.0])
    assert caught.value.operation
    for use in (w.tolist, lambda: asyncio.run(_awaited(w.tolist_async)), lambda: (w + 1.0).tolist()):
        with pytest.raises(OptirsError, match=r"freed memory .*is used"):
            use()
    assert (ow.ones((3,), device=device) + 1.0).tolist() == [2.0] * 3


def test_a_pipeline_that_exceeds_a_limit_is_a_shader_error_with_the_kernels_name(open_device):
    device = open_device("vulkan")
    x = ow.ones((4,), device=device)
    with pytest.raises(ShaderError, match=r"^too_wide:1:1: refused by the device's compiler(.|\n)*Workgroup size"):
        device.dispatch(TooWide(), [x.view], 1)
    assert x.tolist() == [1.0] * 4


def test_a_profile_raises_the_same(device, fail):
    x = ow.ones((64,), device=device)
    device.synchronize()
    with ow.profile():
        name = fail(x)
        with pytest.raises(OptirsError) as caught:
            device.synchronize()
    assert device.name != "cpu" or f"'{name}'" in str(caught.value)
    assert (x + 1.0).tolist() == [2.0] * 64


def test_a_kernel_that_finds_no_memory_on_the_processor_is_named():
    lines = run_python(
        """
        import resource
        import optirs_web as ow
        def work(x):
            return ow.ops.max_pool2d(x, 2)
        work(ow.ones((1, 1, 4, 4), device="cpu")).tolist()
        x = ow.ones((1, 8, 1 << 10, 1 << 10), device="cpu")
        x.device.synchronize()
        y = work(x)
        in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + (4 << 20), resource.RLIM_INFINITY))
        try:
            y.device.synchronize()
        except ow.errors.OutOfDeviceMemoryError as error:
            print(error)
        print(ow.ones((10,), device="cpu").sum().item())
        """
    )
    assert "the operation 'window_largest' failed on device 'cpu'" in lines[0]
    assert lines[1:] == ["10.0"]
