"""Devices, memory and errors: what is there, what is chosen, what happens when it runs out or goes away."""

import asyncio
import gc

import numpy as np
import pytest
from processes import run_python
from requirements import missing

import optirs_web as ow
from optirs_web.errors import (
    DeviceNotAvailableError,
    OutOfDeviceMemoryError,
    ShaderError,
    UnsupportedError,
)
from optirs_web.runtime.kernels import Binding, Kernel
from optirs_web.runtime.pool import Pool, size_class
from optirs_web.wgsl import parse

# What there is, and what is chosen.


def test_devices_lists_each_name_with_what_it_is_or_why_it_is_not():
    found = {one.name: one for one in ow.devices()}
    assert set(found) == {"webgpu", "vulkan", "metal", "dx12", "gl", "cpu"}
    assert found["cpu"].available
    assert "NumPy" in found["cpu"].description
    for one in found.values():
        assert one.available or one.reason


def test_the_same_name_gives_the_same_device(device):
    assert ow.device(device.name) is device
    assert ow.device(f"{device.name}:0") is device


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda", "there is no device 'cuda'; known are auto, webgpu, vulkan"),
        ("webgpu", "it runs in a browser, inside Pyodide; natively use vulkan, metal or dx12"),
        ("cpu:1", "there are 1 of that kind"),
        ("vulkan:x", "write vulkan:0, vulkan:1"),
        ("", "there is no device ''"),
    ],
)
def test_a_device_that_does_not_exist_is_refused(name, message):
    with pytest.raises(DeviceNotAvailableError, match=message):
        ow.device(name)


NO_ADAPTER = {"VK_ICD_FILENAMES": "/nonexistent.json", "VK_DRIVER_FILES": "/nonexistent.json"}


def test_without_an_adapter_vulkan_says_what_to_install_and_auto_takes_the_cpu(open_device):
    open_device("vulkan")  # elsewhere there is no driver to hide
    lines = run_python(
        """
        import optirs_web as ow
        try:
            ow.device("vulkan")
        except ow.errors.DeviceNotAvailableError as error:
            print(error)
        chosen = ow.device("auto")
        print(chosen.name, chosen.why)
        """,
        **NO_ADAPTER,
    )
    assert "no vulkan adapter found; install the graphics card's Vulkan driver" in lines[0]
    assert lines[1].startswith("cpu no hardware adapter was found")


def test_auto_takes_a_hardware_adapter_and_never_one_of_software_and_says_why(open_device):
    is_software = open_device("vulkan").info.software
    lines = run_python(
        """
        import optirs_web as ow
        print(ow.device("auto").name, ow.device("auto").why)
        print(ow.device() is ow.device("auto"))
        """,
        OPTIRS_DEVICE=None,
    )
    if is_software:
        assert lines[0] == "cpu no hardware adapter was found (no metal, vulkan is software, no dx12)"
    else:
        assert lines[0].startswith(("metal ", "vulkan ", "dx12 "))
    assert lines[1] == "True"


def test_the_environment_variable_overrides_auto(device):
    lines = run_python("import optirs_web as ow; print(ow.zeros((1,)).device.name)", OPTIRS_DEVICE=device.name)
    assert lines == [device.name]


def test_import_loads_neither_numpy_nor_a_backend():
    lines = run_python(
        """
        import sys
        import optirs_web
        print([name for name in ("numpy", "wgpu", "optirs_web.native_backends") if name in sys.modules])
        """
    )
    assert lines == ["[]"]


def test_every_public_name_exists():
    assert all(getattr(ow, name) is not None for name in ow.__all__)
    assert set(ow.__all__) <= set(dir(ow))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = ow.nonsense


# Memory.


def test_size_classes_lose_at_most_a_quarter():
    for nbytes in [1, 255, 256, 257, *range(300, 100_000, 77), 1 << 30, (1 << 30) + 1]:
        taken = size_class(nbytes)
        assert nbytes <= taken <= max(256, nbytes * 1.25)
        assert taken % 64 == 0
        assert size_class(taken) == taken


def test_the_pool_gives_back_what_was_put_in():
    pool = Pool()
    pool.put("a", 256)
    pool.put("b", 512)
    assert (pool.nbytes, pool.take(1024), pool.take(256), pool.nbytes) == (768, None, "a", 512)
    assert pool.drain() == [("b", 512)]
    assert (pool.nbytes, pool.take(512)) == (0, None)


def test_freed_memory_is_reused_and_trimmed(device):
    gc.collect()
    device.trim()
    before = device.memory_stats()
    for _ in range(10):
        _ = ow.zeros((1000,), device=device)
    after = device.memory_stats()
    assert after.allocated - before.allocated <= 2
    assert after.reused - before.reused >= 8
    del _
    assert device.memory_stats().pooled_bytes > 0
    device.trim()
    assert device.memory_stats().pooled_bytes == 0
    assert device.memory_stats().live_buffers == before.live_buffers


@pytest.fixture
def limited(device):
    """A function that sets a limit of so many bytes above what is live; lifted afterwards."""
    gc.collect()
    device.trim()
    yield lambda nbytes: device.set_memory_limit(device.memory_stats().live_bytes + nbytes)
    device.set_memory_limit(None)


def test_beyond_the_limit_the_error_has_the_figures_and_a_smaller_job_runs(device, limited):
    limited(1 << 20)
    limit = device.memory_stats().limit
    with pytest.raises(OutOfDeviceMemoryError, match=f"asked for {4 << 20:,} bytes") as caught:
        ow.zeros((1 << 20,), device=device)
    assert (caught.value.asked, caught.value.limit) == (4 << 20, limit)
    assert caught.value.in_use == limit - (1 << 20)
    assert f"{limit:,} bytes" in str(caught.value)
    assert ow.ones((1000,), device=device).sum().item() == 1000


def test_the_pool_is_trimmed_before_the_limit_refuses(device, limited):
    limited(1 << 20)
    _ = ow.zeros((150_000,), device=device)
    del _
    assert device.memory_stats().pooled_bytes > 0
    kept = ow.zeros((200_000,), device=device)
    assert (kept.size, device.memory_stats().pooled_bytes) == (200_000, 0)


def test_set_memory_limit_holds_for_every_device(device):
    ow.set_memory_limit(0)
    try:
        with pytest.raises(OutOfDeviceMemoryError):
            ow.tensor(np.zeros(1_000_003, np.float32), device=device)
    finally:
        ow.set_memory_limit(None)
    with pytest.raises(ValueError, match="not -1"):
        ow.set_memory_limit(-1)


def test_a_buffer_larger_than_the_device_allows_is_refused(device):
    with pytest.raises(OutOfDeviceMemoryError):
        device.allocate(device.capabilities.max_buffer_bytes + 1)


def test_an_optimizer_that_does_not_fit_leaves_its_parameters_usable(device, limited):
    param = ow.Parameter(np.ones(100_000, np.float32), device=device)
    limited(500_000)
    with pytest.raises(OutOfDeviceMemoryError):
        ow.optim.Adam([param], lr=0.1)
    device.set_memory_limit(None)
    gc.collect()
    optimizer = ow.optim.Adam([param], lr=0.1)
    optimizer.step(grads=[np.ones(100_000, np.float32)])
    assert param.numpy()[[0, -1]] == pytest.approx(0.9)


def test_when_the_process_has_no_memory_left_the_error_is_ours_and_a_smaller_job_runs(device):
    lines = run_python(
        f"""
        import resource
        import optirs_web as ow
        ow.ones((1000,), device={device.name!r}).sum().item()
        in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + (300 << 20), resource.RLIM_INFINITY))
        kept = []
        try:
            while True:
                kept.append(ow.ones((16 << 20,), device={device.name!r}))
        except ow.errors.OutOfDeviceMemoryError as error:
            print(error.asked, error.in_use, error.limit)
            print(error)
        kept.clear()
        print(ow.ones((1000,), device={device.name!r}).sum().item())
        """
    )
    asked, in_use, limit = lines[0].split()
    assert int(asked) == 64 << 20
    assert int(in_use) >= 64 << 20
    assert limit == "None"
    assert f"device '{device.name}' is out of memory: asked for {64 << 20:,} bytes" in lines[1]
    assert float(lines[2]) == 1000.0


def test_a_size_that_just_fits_is_not_refused_for_its_size_class(device, limited):
    limited(1_100_000)
    kept = ow.zeros((262_500,), device=device)
    assert kept.size == 262_500


def test_no_memory_while_reading_is_our_error_too(open_device):
    open_device("vulkan")
    lines = run_python(
        """
        import resource
        import numpy
        import optirs_web as ow
        ow.ones((10,), device="vulkan").sum().item()  # a software driver compiles at first use
        x = ow.ones((32 << 20,), device="vulkan")
        x.device.synchronize()
        in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + (64 << 20), resource.RLIM_INFINITY))
        try:
            x.numpy()
        except MemoryError as error:
            print(type(error).__name__)
        print(ow.ones((10,), device="vulkan").sum().item())
        """
    )
    assert lines[0] in ("OutOfDeviceMemoryError", "MemoryError")
    assert lines[1] == "10.0"


def test_the_environments_limit_is_a_number_of_bytes():
    lines = run_python(
        """
        import optirs_web as ow
        try:
            ow.device("cpu")
        except ValueError as error:
            print(error)
        """,
        OPTIRS_MEMORY_LIMIT="1GB",
    )
    assert lines == ["OPTIRS_MEMORY_LIMIT is a number of bytes, not '1GB'"]


# Errors of the device.


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


def test_a_forked_process_is_told_to_spawn(open_device):
    open_device("vulkan")
    lines = run_python(
        """
        import os, signal
        import optirs_web as ow
        x = ow.ones((4,), device="vulkan")
        x.tolist()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            for attempt in (lambda: (x + 1.0).tolist(), lambda: ow.ones((1,), device="vulkan")):
                try:
                    attempt()
                except ow.errors.OptirsError as error:
                    print(type(error).__name__, "spawn" in str(error), flush=True)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), x.tolist())
        """
    )
    assert lines == ["DeviceLostError True", "DeviceNotAvailableError True", "0 [1.0, 1.0, 1.0, 1.0]"]


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
    assert "device 'vulkan' was lost, and all that lay on it" in lines[0]
    assert "load a checkpoint" in lines[0]
    assert lines[1:] == [lines[0], "True", "False 4.0"]


def test_a_closed_device_says_so(open_device):
    open_device("vulkan")
    lines = run_python(
        """
        import optirs_web as ow
        device = ow.device("vulkan")
        x = ow.ones((4,), device=device)
        ow.close_device(device)
        try:
            x.tolist()
        except ow.errors.DeviceLostError as error:
            print(error)
        del x
        print(ow.ones((4,), device="vulkan").tolist())
        """
    )
    assert lines == ["device 'vulkan' was closed", "[1.0, 1.0, 1.0, 1.0]"]


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


def test_a_binding_that_a_kernel_cannot_see_whole_is_refused(open_device):
    vulkan = open_device("vulkan")
    side = 1 + vulkan.capabilities.max_binding_bytes // 4
    if side * 4 > vulkan.capabilities.max_buffer_bytes:
        missing("vulkan", "an adapter that shows kernels less than its largest buffer")
    x = ow.zeros((1, side), device=vulkan)
    with pytest.raises(UnsupportedError, match="Split the tensor"):
        x @ x.reshape(side, 1)


# The rest of the contract.


def test_awaitable_reads(device):
    x = ow.tensor([[1.0, 2.0]], device=device) * 2.0

    async def read():
        return (await x.read_async()).tolist(), (await x.numpy_async()).tolist()

    assert asyncio.run(read()) == ([[2.0, 4.0]], [[2.0, 4.0]])


def test_work_is_submitted_in_batches_and_not_per_operation(device):
    x = ow.ones((4,), device=device)
    device.synchronize()
    before = device.stats.copy()
    for _ in range(50):
        x = x + 1.0
    assert x.tolist() == [51.0] * 4
    cost = device.stats - before
    assert (cost.dispatches, cost.submits) == (50, 1)


def test_stats_add_up_over_devices(device):
    before = ow.stats()
    (ow.ones((4,), device=device) + 1.0).tolist()
    cost = ow.stats() - before
    assert (cost.dispatches, cost.bytes_down) == (2, 16)


def test_an_arena_larger_than_a_binding_is_updated_in_windows(open_device):
    vulkan = open_device("vulkan")
    size = vulkan.capabilities.max_binding_bytes // 4 + 300
    if size > 1 << 27:
        missing("vulkan", "an adapter that shows kernels at most 512 MiB of a buffer")
    params = [ow.Parameter(np.ones(one, np.float32), device=vulkan) for one in (size, 100)]
    optimizer = ow.optim.SGD(params, lr=0.5)
    for one in params:
        one.grad = ow.ones(one.shape, device=vulkan)
    before = vulkan.stats.copy()
    optimizer.step()
    assert (vulkan.stats - before).dispatches == 3  # advance, and two windows
    for one in params:
        assert (one.numpy() == 0.5).all()


@pytest.mark.parametrize("name", ["vulkan", "metal", "dx12", "gl"])
def test_every_adapter_that_is_there_trains_like_the_cpu(name, open_device):
    device = open_device(name)

    def losses(on):
        w = ow.Parameter(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), device=on)
        optimizer = ow.optim.AdamW([w], lr=0.05)
        x, labels = ow.randn((32, 4), device=on, seed=1), ow.tensor(np.arange(32, dtype=np.int32) % 3, device=on)

        def train_step():
            optimizer.zero_grad()
            loss = ow.cross_entropy(x @ w, labels)
            loss.backward()
            optimizer.step()
            return loss

        step = ow.compile(train_step, device=on)
        return [step().item() for _ in range(20)]

    assert losses(device) == pytest.approx(losses("cpu"), rel=1e-5)
