"""Errors of a device: owners freed at a bad moment, forks, devices that are lost or closed, refused shaders."""

import copy
import gc
import pickle

import numpy as np
import pytest
import software_cuda
from processes import run_python
from requirements import each_needing

import optirs_web as ow
from optirs_web.errors import ShaderError
from optirs_web.runtime.kernels import Binding, Kernel
from optirs_web.wgsl import parse


def test_owners_may_go_in_the_middle_of_a_submit(device):
    """Python collects cycles at any moment; what is freed then must not reach the device half-way."""
    submit, seen = device._backend.submit, []

    def collecting_submit(commands):
        gc.collect()
        seen.append(len(commands))
        submit(commands)

    class Cycle:
        pass

    param = ow.Parameter(np.ones(100, np.float32), device=device)
    cycle = Cycle()
    cycle.itself, cycle.optimizer = cycle, ow.optim.Adam([param], lr=0.1)
    cycle.optimizer.step(grads=[np.ones(100, np.float32)])
    device._backend.submit = collecting_submit
    try:
        gc.disable()
        cycle.optimizer.step()
        del cycle
        device.flush()
        assert param.numpy()[0] == pytest.approx(0.8)
    finally:
        gc.enable()
        del device._backend.submit
    assert seen


@pytest.mark.parametrize("name", each_needing("vulkan", "opencl", "cuda", "xla"))
def test_a_forked_process_is_told_to_spawn(name, open_device):
    open_device(name)
    lines = run_python(
        f"""
        import os, signal
        import software_cuda
        import optirs_web as ow
        with software_cuda.shown("{name}"):
            x = ow.ones((4,), device="{name}")
            x.tolist()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            for attempt in (lambda: (x + 1.0).tolist(), lambda: ow.ones((1,), device="{name}")):
                try:
                    attempt()
                except ow.errors.OptirsError as error:
                    print(type(error).__name__, "spawn" in str(error), flush=True)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), x.tolist())
        """,
        PYTHONPATH=software_cuda.HERE.parent,
    )
    assert lines == ["DeviceLostError True", "DeviceNotAvailableError True", "0 [1.0, 1.0, 1.0, 1.0]"]


@pytest.mark.parametrize("name", each_needing("opencl", "xla"))
def test_a_process_that_was_forked_after_devices_were_listed_is_told_to_spawn(name, open_device):
    open_device(name)
    lines = run_python(
        f"""
        import os, signal
        import optirs_web as ow
        ow.devices()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                ow.ones((4,), device="{name}").tolist()
            except ow.errors.DeviceNotAvailableError as error:
                print("spawn" in str(error), flush=True)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert lines == ["True", "0"]


def test_an_optimizer_says_that_a_parameter_was_lost_with_a_device_that_was_opened_again():
    (line,) = run_python(
        """
        import optirs_web as ow
        params = []
        for _ in range(2):
            ow.close_device("cpu")
            params.append(ow.Parameter([1.0], device="cpu"))
        try:
            ow.optim.Adam(params, lr=0.1)
        except ow.errors.DeviceLostError as error:
            print(error)
        """
    )
    assert "an optimizer got a tensor on a device 'cpu' that was lost" in line


def test_a_lost_device_is_reported_and_opened_again(open_device):
    open_device("vulkan")
    lines = run_python(
        """
        import optirs_web as ow
        device = ow.device("vulkan")
        x = ow.ones((4,), device=device)
        x.sum().item()
        device._backend._device.destroy()
        for _ in range(2):
            try:
                (x + 1.0).sum().item()
            except ow.errors.DeviceLostError as error:
                print(error)
        print(device.lost)
        again = ow.device("vulkan")
        print(again is device, ow.ones((4,), device=again).sum().item())
        """
    )
    assert "device 'vulkan' was lost with everything on it" in lines[0]
    assert "load a checkpoint" in lines[0]
    assert lines[1:] == [lines[0], "True", "False 4.0"]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize(
    "error",
    [
        ow.errors.OutOfDeviceMemoryError(400, 300, 500, "cpu", pooled=4, note="more"),
        ow.errors.DeviceLimitError("matmul", 4096, 2048, "vulkan", "bytes of one buffer"),
        ow.errors.LaunchError("the operation 'add' failed", "add", 3),
        ShaderError("no such name", file="a.wgsl", line=1, column=2),
        ow.errors.ShapeError("shapes differ"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_a_worker_process_arrives_whole(error, again):
    same = again(error)
    assert (type(same), str(same), same.args, vars(same)) == (type(error), str(error), error.args, vars(error))


def test_a_closed_device_says_so(open_device):
    open_device("vulkan")
    lines = run_python(
        """
        import optirs_web as ow
        from optirs_web.runtime import registry
        device = ow.device("vulkan")
        x = ow.ones((4,), device=device)
        ow.close_device(device)
        try:
            x.tolist()
        except ow.errors.DeviceLostError as error:
            print(error)
        del x
        print(ow.ones((4,), device="vulkan").tolist())
        ow.close_device("vulkan")
        print([one.name for one in registry.opened()])
        """
    )
    assert lines == ["device 'vulkan' was closed with everything on it", "[1.0, 1.0, 1.0, 1.0]", "[]"]


def test_only_a_device_that_is_open_is_closed():
    """In a process of its own, so that what other tests use stays open."""
    lines = run_python(
        """
        import sys
        import optirs_web as ow
        from optirs_web.runtime import registry
        for name in ("cpu", "cpu:0", "vulkan", "auto", None):
            ow.close_device(name)
        print([one for one in sys.modules if one.startswith(("optirs_web.native_backends.", "wgpu"))])
        device = ow.device("cpu")
        ow.close_device("cpu:0")
        print(device.closed, registry.opened())
        for wrong in ("vulcan", "cpu:first"):
            try:
                ow.close_device(wrong)
            except ow.errors.DeviceNotAvailableError as error:
                print(error)
        """
    )
    assert lines[:2] == ["[]", "True []"]
    assert lines[2].startswith("there is no device 'vulcan'; known are auto")
    assert lines[3].startswith("'cpu:first' is not a device")


class _BrokenKernel(Kernel):
    name = "broken"
    module = None  # the text below is not of our making
    parameters = ()
    bindings = (Binding("x", "array<f32>", True),)

    def wgsl(self, host="naga"):
        return (
            "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n@compute @workgroup_size(1) fn main() { y }"
        )


def test_a_shader_that_the_devices_compiler_refuses_is_a_shader_error(open_device):
    vulkan = open_device("vulkan")
    x = ow.zeros((4,), device=vulkan)
    with pytest.raises(ShaderError, match="refused by the device's compiler"):
        vulkan.dispatch(_BrokenKernel(), [x.view], 1)


def test_a_shader_with_a_syntax_error_names_file_line_and_column():
    with pytest.raises(ShaderError, match=r"^mine\.wgsl:2:\d+: ") as caught:
        parse("fn f(x: f32) -> f32 {\n    return x + ;\n}", "mine.wgsl")
    assert (caught.value.file, caught.value.line) == ("mine.wgsl", 2)
