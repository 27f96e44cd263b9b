"""Devices: which are available, which is chosen, and how work reaches them."""

import asyncio

import numpy as np
import pytest
from processes import run_python
from requirements import missing

import optirs_web as ow
from optirs_web.errors import DeviceNotAvailableError

# What there is, and what is chosen.


def test_devices_lists_each_name_with_what_it_is_or_why_it_is_not():
    actual = {device.name: device for device in ow.devices()}
    assert set(actual) == {"webgpu", "vulkan", "metal", "dx12", "gl", "cpu", "cuda", "opencl", "xla"}
    assert actual["cpu"].available
    assert "NumPy" in actual["cpu"].description
    for one in actual.values():
        assert one.available or one.reason


def test_the_same_name_gives_the_same_device(device):
    assert ow.device(device.name) is device
    assert ow.device(f"{device.name}:0") is device


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rocm", "there is no device 'rocm'; known are auto, webgpu, vulkan"),
        ("rocm", "xla, vulkan-dawn, metal-dawn, dx12-dawn"),
        ("webgpu", "it runs in a browser, inside Pyodide; natively use vulkan, metal or dx12"),
        ("cpu:1", "there are 1 of that kind, from 0 on"),
        ("vulkan:x", "write vulkan:0, vulkan:1"),
        ("", "there is no device ''"),
    ],
)
def test_a_device_that_does_not_exist_is_refused(name, message):
    with pytest.raises(DeviceNotAvailableError, match=message):
        ow.device(name)


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
        opencl = next(device for device in ow.devices() if device.name == "opencl")
        actual = "opencl is software" if opencl.available else "no opencl"
        assert (
            lines[0] == f"cpu no hardware adapter was found (no metal, no cuda, vulkan is software, no dx12, {actual})"
        )
    else:
        assert lines[0].startswith(("metal ", "cuda ", "vulkan ", "dx12 "))
    assert lines[1] == "True"


def test_the_environment_variable_overrides_auto(device):
    lines = run_python("import optirs_web as ow; print(ow.zeros((1,)).device.name)", OPTIRS_DEVICE=device.name)
    assert lines == [device.name]


def test_a_first_result_on_the_processor_loads_no_asyncio():
    lines = run_python(
        """
        import sys
        import optirs_web as ow
        w = ow.Parameter([1.0], device="cpu")
        ow.compile(lambda: w * 2.0, device="cpu")().item()
        print("asyncio" in sys.modules)
        """
    )
    assert lines == ["False"]


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


# The rest of the contract.


def test_awaitable_reads(device):
    x = ow.tensor([[1.0, 2.0]], device=device) * 2.0

    async def read():
        return (await x.read_async()).tolist(), (await x.numpy_async()).tolist()

    assert asyncio.run(read()) == ([[2.0, 4.0]], [[2.0, 4.0]])


def test_reads_begin_at_the_call_so_that_several_overlap(device):
    x = ow.full((16,), 1.0, device=device)
    full = ow.full((), 3.0, device=device)

    async def read():
        with ow.profile(device) as profile:
            y = x + 1.0
            reads = [y.numpy_async(), y.tolist_async(), full.item_async(), y.read_async(), device.read_async(y.view)]
            device.copy(x.view, y.view)  # what was asked for before is not changed by it
            values = [await each for each in reads]
        kinds = [span.kind for span in profile.host if span.kind in ("submit", "read", "wait")]
        return values, kinds

    (array, numbers, item, view, raw), kinds = asyncio.run(read())
    assert (array.tolist(), numbers, item, view.tolist()) == ([2.0] * 16, [2.0] * 16, 3.0, [2.0] * 16)
    assert raw.cast("B").cast("f").tolist() == [2.0] * 16
    assert kinds[:5] == ["submit", "read", "read", "read", "read"]


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
    params = [ow.Parameter(np.ones(size_, np.float32), device=vulkan) for size_ in (size, 100)]
    optimizer = ow.optim.SGD(params, lr=0.5)
    for param in params:
        param.grad = ow.ones(param.shape, device=vulkan)
    before = vulkan.stats.copy()
    optimizer.step()
    assert (vulkan.stats - before).dispatches == 3  # advance, and two windows
    for param in params:
        assert (param.numpy() == 0.5).all()


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


def test_kernels_of_a_recorded_step_are_compiled_in_other_threads(open_device):
    """In a process of its own, which has compiled none of them."""
    open_device("vulkan")
    lines = run_python(
        """
        import math, threading
        import optirs_web as ow
        from optirs_web.native_backends.wgpu import backend as wgpu

        device = ow.device("vulkan")
        x = ow.ones((4, 4), device=device)
        threads, create = [], wgpu.WgpuBackend._create_pipeline

        def noting(self, *arguments):
            threads.append(threading.current_thread() is threading.main_thread())
            return create(self, *arguments)

        wgpu.WgpuBackend._create_pipeline = noting
        step = ow.compile(lambda x: (x @ x).tanh().sum(), device=device)
        before = device.stats.pipelines
        print([math.isclose(step(x).item(), 16 * math.tanh(4.0), rel_tol=1e-6) for _ in range(2)])
        print(len(threads) > 1, any(threads), device.stats.pipelines - before == len(threads))
        (x + 1.0).tolist()
        print(threads[-1])  # no other thread is asked for what is needed at once
        ow.close_device(device)
        print([one.name for one in threading.enumerate() if one is not threading.main_thread()])
        """
    )
    assert lines == ["[True, True]", "True False True", "True", "[]"]
