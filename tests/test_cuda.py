"""What is CUDA's own: what is said where it is missing, and the device, on a driver in software (`software_cuda`).

NVIDIA's compiler and cuda.bindings are real. The driver runs nothing before somebody waits, so that what is given to it
has to stay where it is as long as CUDA says.
"""

import asyncio
import gc
import os
import sys
import threading
import weakref
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest
import software_cuda
from processes import run_python
from requirements import missing

import optirs_web as ow
from optirs_web import dlpack_capsules
from optirs_web.errors import (
    DeviceLostError,
    DeviceNotAvailableError,
    LaunchError,
    OptirsError,
    OutOfDeviceMemoryError,
    ShaderError,
    UnsupportedError,
)
from optirs_web.native_backends import cuda as cuda_listing, cuda_products
from optirs_web.runtime import registry, user_cache
from optirs_web.runtime.timing import GPU_TIMESTAMPS

KINDS = ("allocations", "contexts", "events", "executables", "graphs", "host allocations", "modules", "streams")


@pytest.fixture
def driver():
    """The driver in software, with a GPU to be found."""
    with software_cuda.shown() as found:
        if found is None:
            missing("software-cuda", "NVIDIA's own driver is there, so that none in software takes its place")
        yield found
        found.set(init=0, version=13000, capability=90, prohibited=0, pools=1, fault=0, instantiate=0, memory=2 << 30)


@pytest.fixture
def cuda(open_device):
    """The device, which all tests share."""
    return open_device("cuda")


@contextmanager
def opened(label="cuda:1"):
    """A device of one test's own, which is closed in the end, unless it is lost."""
    device = ow.device(label)
    try:
        yield device
    finally:
        if not device.lost:
            ow.close_device(device)
        registry.avoided.clear()


# What there is, or why there is nothing.


def reason():
    (found,) = cuda_listing.list_adapters("cuda")
    assert not found.available
    return found.reason


def test_a_gpu_is_told_with_its_name_memory_and_place(driver):
    driver.set(devices=2)
    first, second = cuda_listing.list_adapters("cuda")
    assert first.description == "CUDA in software (compute capability 9.0, driver of CUDA 13.0)"
    assert (first.label, second.label, first.bus, second.bus) == ("cuda", "cuda:1", "0000:3a:00.0", "0000:3b:00.0")
    assert (first.kind, first.memory, first.features) == ("discrete", 2 << 30, {"shader-f16"})


def test_without_a_driver_it_says_what_to_install():
    lines = run_python(
        """
        import ctypes
        import optirs_web as ow
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            print(next(one.reason for one in ow.devices() if one.name == "cuda"))
        """
    )
    if not lines:
        missing("software-cuda", "NVIDIA's own driver is there, and what is said without it is not")
    assert lines[0].startswith("libcuda.so.1, of NVIDIA's driver, cannot be loaded: where there is a GPU of NVIDIA, ")
    assert "install NVIDIA's driver, of version 580 or newer (nvidia.com/drivers; " in lines[0]
    assert lines[0].endswith("with `docker run --gpus all`, which NVIDIA's container toolkit makes work")


def test_a_driver_that_only_the_container_lacks_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(cuda_listing, "_DRIVER", "libabsent.so")
    monkeypatch.setattr(cuda_listing, "_CARDS", str(tmp_path))
    assert reason().startswith(
        "libabsent.so, of NVIDIA's driver, cannot be loaded: the machine has the driver, and this"
    )


@pytest.mark.usefixtures("driver")
def test_without_its_packages_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cuda_listing.nvrtc, "version", cuda_listing.nvrtc.version.__wrapped__)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    monkeypatch.delattr("cuda.bindings.nvrtc")
    assert reason().startswith("NVIDIA's compiler is not installed: pip install 'optirs-web[cuda]'")
    monkeypatch.delitem(sys.modules, "optirs_web.native_backends.cuda_driver")
    monkeypatch.delattr("optirs_web.native_backends.cuda_driver")
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    assert reason().startswith("NVIDIA's package cuda-bindings is not installed: pip install 'optirs-web[cuda]'")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"devices": 0}, "finds no GPU of NVIDIA: see what nvidia-smi says"),
        ({"init": 100}, "finds no GPU of NVIDIA: see what nvidia-smi says"),
        ({"init": 3}, "initialization error .* forked from one that had looked for GPUs: start it with 'spawn'"),
        ({"init": 34}, r"CUDA driver is a stub library \(CUDA_ERROR_STUB_LIBRARY\): .* take the CUDA toolkit's folder"),
        ({"init": 803}, "of different versions, as after an update: restart the machine"),
        ({"init": 999}, r"does not start, unknown error \(CUDA_ERROR_UNKNOWN\): .* sudo modprobe nvidia_uvm"),
        ({"version": 12040}, "knows CUDA 12.4, and the compiler .* for 13.0 or newer: install NVIDIA's driver, of ver"),
        ({"capability": 61}, "has compute capability 6.1, and the compiler .* and newer: use vulkan or opencl"),
        ({"prohibited": 1}, "CUDA in software lets no program compute, by its compute mode: sudo nvidia-smi -c 0"),
    ],
)
def test_why_there_is_none_is_said_with_what_to_do(driver, monkeypatch, settings, message):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver.set(**settings)
    with pytest.raises(DeviceNotAvailableError, match=f"^device 'cuda:1' is not available: .*{message}"):
        ow.device("cuda:1")


def test_a_variable_that_hides_gpus_is_named(driver, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    driver.set(devices=0)
    assert reason() == ("NVIDIA's driver is there, and CUDA_VISIBLE_DEVICES=7 hides every GPU: unset it, or correct it")


def test_a_function_that_an_old_driver_lacks_is_no_crash(driver, monkeypatch):
    from optirs_web.native_backends import cuda_driver

    def lacking():
        raise RuntimeError("function cuDeviceGetCount is not found")

    monkeypatch.setattr(cuda_driver, "devices", lacking)
    assert reason().startswith("NVIDIA's driver is too old for cuda-bindings (function cuDeviceGetCount is not found)")


# What it computes.


def training(device):
    """A small model of many kinds of kernels: the losses of a compiled step, and the parameters after it."""
    ow.manual_seed(3)
    random = np.random.default_rng(0)
    images, labels = random.random((24, 6), np.float32), random.integers(0, 5, 24).astype(np.int32)
    shapes = {"table": (5, 6), "w": (6, 40), "b": (40,), "v": (40, 5)}
    leaves = {
        name: ow.Parameter(random.standard_normal(shape).astype(np.float32) * 0.5, device=device)
        for name, shape in shapes.items()
    }
    optimizer = ow.optim.AdamW(leaves.values(), lr=0.05, state_dtype="8bit")

    def train_step(x, labels):
        optimizer.zero_grad()
        hidden = (x + ow.ops.embedding(leaves["table"], labels)) @ leaves["w"] + leaves["b"]
        hidden = ow.ops.dropout(ow.ops.gelu(hidden), 0.2)
        loss = ow.cross_entropy(ow.ops.layer_norm(hidden, (40,)) @ leaves["v"], labels)
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step, device=device)
    losses = [step(images, labels).item() for _ in range(6)]
    return losses, {name: one.numpy() for name, one in leaves.items()}


def test_a_model_trains_as_on_the_processor(cuda, open_device):
    losses, leaves = training(cuda)
    expected, expected_leaves = training(open_device("cpu"))
    assert losses == pytest.approx(expected, rel=1e-5)
    assert losses[-1] < 0.8 * losses[0]
    for name, values in expected_leaves.items():
        np.testing.assert_allclose(leaves[name], values, rtol=2e-4, atol=2e-5)


def test_bytes_go_to_the_device_and_back_whatever_happens_to_them_meanwhile(cuda):
    """More than both pieces of page-locked memory hold, and sizes that are no multiples of anything."""
    values = np.arange((9 << 18) + 5, dtype=np.int32)
    kept = values.copy()
    x = ow.tensor(values, device=cuda)
    values[:] = -1
    small = [ow.tensor([float(number)] * 3, device=cuda) for number in range(300)]
    assert (x.numpy() == kept).all()
    assert [one.tolist()[0] for one in small] == list(range(300))


def test_a_read_gives_what_was_there_when_it_was_asked_for(cuda):
    x = ow.tensor(np.zeros(100, np.float32), device=cuda)
    cuda.flush()
    backend, handle = cuda.backend, x.view.buffer.handle
    reading = backend.read_async(handle, 0, 400)
    backend.write(handle, 0, memoryview(np.ones(100, np.float32)))
    assert not np.frombuffer(asyncio.run(_awaited(reading)), np.float32).any()
    assert x.tolist() == [1.0] * 100
    with backend.errors():
        backend._transfers.receive_later(handle.at(0), 400)  # which nobody waits for
    assert len(backend._transfers.abandoned) == 1
    cuda.synchronize()
    assert not backend._transfers.abandoned


async def _awaited(reading):
    return await reading


# Recorded steps.


def adamw(device):
    w = ow.Parameter(np.ones(1000, np.float32), device=device)
    optimizer = ow.optim.AdamW([w])
    w.grad = ow.ones(w.shape, device=device)
    step = ow.compile(lambda: optimizer.step(), device=device)
    step()  # the first replay runs one by one
    return w, step


def test_a_replayed_step_is_one_launch_of_a_graph(cuda, driver):
    _, step = adamw(cuda)
    step()
    before, calls = cuda.stats.copy(), {name: driver.count(name) for name in ("cuLaunchKernel", "cuGraphLaunch")}
    step()
    cost = cuda.stats - before
    assert (cost.dispatches, cost.submits, cost.bind_groups, cost.pipelines, cost.bytes_down) == (2, 1, 0, 0, 0)
    assert driver.count("cuGraphLaunch") == calls["cuGraphLaunch"] + 1
    assert driver.count("cuLaunchKernel") == calls["cuLaunchKernel"]


def test_where_no_graph_can_be_made_the_steps_run_one_by_one(cuda, driver):
    w, step = adamw(cuda)
    step()
    expected, other = adamw(cuda)
    driver.set(instantiate=2)
    for each in (step, other, other):
        each()
    driver.set(instantiate=0)
    assert driver.count("graphs") == 0
    step()
    other()
    assert w.tolist() == expected.tolist()


def test_graphs_that_nobody_replays_any_more_are_given_back(cuda, driver):
    _, step = adamw(cuda)
    step()
    cuda.synchronize()
    before = driver.count("executables")
    del step
    ow.empty_cache()
    cuda.synchronize()
    assert driver.count("executables") == before - 1


def test_memory_that_a_step_has_bound_and_that_is_freed_is_an_error_of_ours(cuda):
    w = ow.Parameter([1.0, 2.0], device=cuda)
    step = ow.compile(lambda x: (w * x).sum(), device=cuda)
    for _ in range(3):  # of which the last ones replay a graph
        assert step([1.0, 1.0]).item() == 3.0
    w.view.buffer.release()
    cuda.memory_stats()  # takes it back
    cuda.trim()
    with pytest.raises(LaunchError, match="names memory that was freed"):
        step([1.0, 1.0])
    with pytest.raises(OptirsError, match="is used that was freed"):
        w.tolist()
    assert (ow.ones((3,), device=cuda) + 1.0).tolist() == [2.0] * 3


def test_a_profile_goes_by_the_devices_clock(cuda):
    x = ow.ones((1 << 12,), device=cuda)
    with ow.profile(cuda) as profile:
        (x + 1.0).tolist()
        (x * 2.0).tolist()
    assert profile.clock == GPU_TIMESTAMPS
    runs = profile.kernels
    assert [one.name for one in runs if one.name in ("add", "multiply")] == ["add", "multiply"]
    assert all(one.start <= one.end for one in runs)
    assert all(first.end <= second.start + 1e-6 for first, second in pairwise(runs))


# What goes wrong.


def test_a_closed_device_leaves_nothing_to_those_who_share_its_context(driver):
    driver.set(devices=2)
    before = {kind: driver.count(kind) for kind in KINDS}
    with opened() as device:
        _, step = adamw(device)
        step()
        x = ow.ones((5000,), device=device)
        assert (x + 1.0).sum().item() == 10000.0
        with ow.profile(device):
            x.sum().item()
        assert driver.count("allocations") > before["allocations"]
    assert {kind: driver.count(kind) for kind in KINDS} == before
    assert driver.count("pushed contexts") == 0


def test_without_pools_memory_comes_from_the_device_itself(driver):
    driver.set(devices=2, pools=0)
    with opened() as device:
        assert (ow.ones((1000,), device=device) + 1.0).sum().item() == 2000.0
        device.trim()
        assert driver.count("cuMemAlloc") > 0


def test_want_of_memory_is_an_error_of_ours_and_smaller_work_goes_on(driver):
    driver.set(devices=2)
    with opened() as device:
        driver.set(memory=1 << 22)
        with pytest.raises(OutOfDeviceMemoryError, match=r"asked for 8,000,000 bytes"):
            ow.zeros((2_000_000,), device=device)
        assert (ow.ones((1000,), device=device) + 1.0).sum().item() == 2000.0


def test_a_fault_loses_the_device_and_names_the_operation(driver, monkeypatch):
    driver.set(devices=2)
    for blocking, names in (
        (False, "in one of the operations '[a-z_0-9]+', 'exp_'"),
        (True, "in the operation 'exp_'"),
    ):
        monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", str(int(blocking)))
        with opened() as device:
            x = ow.ones((64,), device=device)
            if blocking:
                device.synchronize()
            x = x.exp()
            driver.set(fault=700)
            with pytest.raises(
                DeviceLostError, match=f"an illegal memory access was encountered .*, {names}"
            ) as caught:
                x.tolist()
            assert "start it again and load a checkpoint" in str(caught.value)
            with pytest.raises(DeviceLostError, match="an illegal memory access"):
                device.synchronize()
            with pytest.raises(DeviceNotAvailableError, match="CUDA does not serve a process in which a kernel failed"):
                ow.device("cuda:1")
            assert device.lost
        driver.heal()


def test_a_forked_process_is_told_to_spawn(driver):
    lines = run_python(
        """
        import os, signal, sys
        sys.path.insert(0, "tests")
        import software_cuda
        import optirs_web as ow
        with software_cuda.shown():
            x = ow.ones((4,), device="cuda")
            x.tolist()
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                for attempt in (lambda: (x + 1.0).tolist(), lambda: ow.ones((1,), device="cuda")):
                    try:
                        attempt()
                    except ow.errors.OptirsError as error:
                        print(type(error).__name__, "spawn" in str(error), flush=True)
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), x.tolist())
        """
    )
    assert lines == ["DeviceLostError True", "DeviceNotAvailableError True", "0 [1.0, 1.0, 1.0, 1.0]"]


# What is kept on disk.


def test_machine_code_is_kept_and_made_again_where_it_is_damaged(driver, monkeypatch, tmp_path):
    driver.set(devices=2)
    folder = tmp_path / "optirs-web" / "cuda"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache.folder() == str(folder.parent)

    def run():
        with opened() as device:
            assert (ow.ones((4,), device=device) + 1.0).tolist() == [2.0] * 4
        return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}

    times = run()
    assert times
    assert run() == times
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    damaged = run()
    assert damaged.keys() == times.keys()
    assert all(damaged[name] != times[name] for name in times)
    driver.set(capability=200)  # newer than the compiler, so PTX
    assert len(run()) == 2 * len(times)
    assert any(b".entry main_" in path.read_bytes() for path in folder.iterdir())


def test_kernels_of_a_recorded_step_are_compiled_side_by_side_and_refused_where_they_are_bound(driver, monkeypatch):
    driver.set(devices=2)
    threads, compile_cuda = set(), cuda_listing.nvrtc.compile_cuda

    def compiling(*arguments):
        threads.add(threading.current_thread().name)
        return compile_cuda(*arguments)

    monkeypatch.setattr(cuda_listing.nvrtc, "compile_cuda", compiling)
    monkeypatch.setattr(user_cache, "folder", lambda: os.devnull)
    with opened() as device:
        x = ow.ones((8, 8), device=device)
        step = ow.compile(lambda: (x.exp().sum(axis=0), x.softmax(axis=1)), device=device)
        assert step()[0].tolist() == pytest.approx([8 * np.e] * 8)
        assert any("ThreadPoolExecutor" in name for name in threads)
        monkeypatch.setattr(cuda_listing.nvrtc, "compile_cuda", _refusing)
        with pytest.raises(ShaderError, match="refused by the device's compiler: no"):
            ow.compile(lambda: x.tanh(), device=device)()
        monkeypatch.undo()
        assert x.sum().item() == 64.0


def _refusing(*_):
    raise OptirsError("no")


def test_without_a_folder_that_can_be_written_it_works(driver, monkeypatch, tmp_path):
    driver.set(devices=2)
    (tmp_path / "optirs-web").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with opened() as device:
        assert (ow.ones((4,), device=device) + 1.0).tolist() == [2.0] * 4
    assert os.path.isfile(tmp_path / "optirs-web")


# Memory shared with other libraries on the same GPU. What these would do, the test does, or this library itself.


class Exporter:
    """A library that has an array, and notes what it is asked."""

    def __init__(self, x, **described):
        self.x, self.described, self.asked, self.ended = x, described, None, 0

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked = stream
        one, end = dlpack_capsules.taken(self.x.__dlpack__(stream=stream))

        def ended():
            self.ended += 1
            end()

        return dlpack_capsules.made(one._replace(**self.described), ended, max_version, is_copied=False)


class OldExporter(Exporter):
    """One that knows DLPack as it was before 1.0."""

    def __dlpack__(self, *, stream=None):
        return super().__dlpack__(stream=stream)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "float16", "bfloat16"])
def test_memory_is_shared_without_a_copy(dtype, cuda):
    x = ow.tensor(np.arange(24).reshape(4, 6), device=cuda, dtype=dtype)
    assert x.__dlpack_device__() == (2, 0)
    seen = ow.from_dlpack(x)
    assert (seen.shape, seen.dtype, seen.device) == (x.shape, x.dtype, cuda)
    assert seen.tolist() == x.tolist()
    addresses = [one.view.buffer.handle.address for one in (x, seen)]
    assert addresses[0] == addresses[1]
    assert ow.from_dlpack(x, copy=True).view.buffer.handle.address != addresses[0]


def test_walks_are_shared_as_they_are_and_what_is_no_walk_is_copied(cuda):
    x = ow.tensor(np.arange(24, dtype=np.float32).reshape(4, 6), device=cuda)
    for part in (x[1:, 1:5:2], x.T, x[2]):
        seen = ow.from_dlpack(part)
        assert seen.walk.strides == part.walk.strides
        assert seen.tolist() == part.tolist()
        assert (seen * 2.0).tolist() == (part * 2.0).tolist()
    repeated = ow.ops.broadcast_to(x[:1], (3, 6))
    assert ow.from_dlpack(repeated).tolist() == repeated.tolist()
    assert ow.from_dlpack(ow.zeros((0, 3), device=cuda)).shape == (0, 3)
    with pytest.raises(BufferError, match="without a copy"):
        repeated.__dlpack__(copy=False)


@pytest.mark.parametrize("kind", [Exporter, OldExporter])
def test_another_librarys_array_is_used_in_the_order_of_its_stream_and_kept_as_long_as_it_is_needed(kind, cuda):
    other = kind(ow.tensor([1.0, 2.0, 3.0], device=cuda))
    x = ow.from_dlpack(other)
    assert other.asked == int(cuda.backend.stream)
    y = x * 2.0
    del x
    gc.collect()
    cuda.memory_stats()  # takes it back
    assert other.ended == 0  # the product has not run
    assert y.tolist() == [2.0, 4.0, 6.0]
    assert other.ended == 1


def test_the_pool_does_not_reuse_memory_that_somebody_sees(cuda):
    x = ow.tensor(np.arange(300, dtype=np.float32), device=cuda) + 1.0
    address, buffer = x.view.buffer.handle.address, weakref.ref(x.view.buffer)
    described, end = dlpack_capsules.taken(x.__dlpack__(stream=1))
    assert (described.address, described.device, described.shape) == (address, (2, 0), (300,))
    del x
    gc.collect()
    others = [ow.ones((300,), device=cuda) * 2.0 for _ in range(20)]
    assert address not in [one.view.buffer.handle.address for one in others]
    assert [one.sum().item() for one in others] == [600.0] * 20
    assert buffer() is not None
    end()
    assert buffer() is None


def test_a_consumers_stream_waits_for_the_work_so_far_and_this_one_for_the_consumers(cuda, driver):
    for stream, waits, settles in ((None, 1, 1), (2, 1, 1), (-1, 0, 0), (int(cuda.backend.stream), 1, 0)):
        x = ow.ones((4,), device=cuda) + 1.0
        before = driver.count("cuStreamWaitEvent"), driver.count("cuCtxSynchronize")
        _, end = dlpack_capsules.taken(x.__dlpack__(stream=stream))
        assert driver.count("cuStreamWaitEvent") - before[0] == waits
        end()
        assert x.tolist() == [2.0] * 4
        assert driver.count("cuStreamWaitEvent") - before[0] == waits + settles
        assert driver.count("cuCtxSynchronize") - before[1] == 1 - settles  # where an event might be in no stream


def test_a_capsule_that_nobody_takes_gives_its_memory_back(cuda):
    x = ow.ones((4,), device=cuda)
    handle = x.view.buffer.handle
    capsule = x.__dlpack__(max_version=(1, 0))
    assert handle.lent == 1
    del capsule
    cuda.synchronize()
    assert handle.lent == 0
    capsule = x.__dlpack__()
    _, end = dlpack_capsules.taken(capsule)
    end()
    with pytest.raises(BufferError, match="somebody has taken it already"):
        dlpack_capsules.taken(capsule)


def test_what_cannot_be_shared_is_refused_or_goes_by_the_host(cuda, open_device):
    x = ow.ones((4,), device=cuda)
    with pytest.raises(BufferError, match="stream 0 no meaning"):
        x.__dlpack__(stream=0)
    with pytest.raises(BufferError, match=r"export x.float\(\)"):
        (x > 0.0).__dlpack__()
    assert np.from_dlpack(x, device="cpu").tolist() == [1.0] * 4
    assert ow.from_dlpack(np.arange(3, dtype=np.float32), device=cuda).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(BufferError, match="by a copy alone"):
        ow.from_dlpack(np.arange(3), device=cuda, copy=False)
    for described in ({"kind": (2, 64)}, {"strides": (-1,)}, {"address": x.view.buffer.handle.address + 2}):
        other = Exporter(x, **described)
        with pytest.raises(UnsupportedError):
            ow.from_dlpack(other)
        assert other.ended == 1
    with pytest.raises(BufferError, match="of DLPack 9"):
        dlpack_capsules.taken(_of_version(x, 9))


def _of_version(x, major):
    capsule = x.__dlpack__(max_version=(1, 0))
    structure = dlpack_capsules._Versioned.from_address(dlpack_capsules._pointer(id(capsule), b"dltensor_versioned"))
    structure.major = major
    return capsule


# Products by cuBLAS, which is in software here too.


@pytest.fixture
def with_cublas(driver, monkeypatch):
    """A device that finds it, and how often it was called so far."""
    library = software_cuda.cublas()
    monkeypatch.setattr(cuda_products, "library", lambda: library)
    monkeypatch.setattr("optirs_web.native_backends.cuda_device.library", lambda: library)
    driver.set(devices=2)
    with opened() as device:
        yield device, library.software_cublas_calls
    ow.set_float32_matmul_precision("highest")


def walks(device, generator):
    """Operands of products: as they lie, transposed, of a batch, repeated along it, sliced, of one row or column."""

    def numbers(*shape):
        values = generator.standard_normal(shape).astype(np.float32)
        return ow.tensor(values, device=device), values

    for (a, x), (b, y), is_by_cublas in (
        (numbers(5, 7), numbers(7, 3), 1),
        ((lambda pair: (pair[0].T, pair[1].T))(numbers(7, 5)), numbers(7, 3), 1),
        (numbers(5, 7), (lambda pair: (pair[0].T, pair[1].T))(numbers(3, 7)), 1),
        (numbers(4, 5, 7), numbers(4, 7, 3), 1),
        (numbers(2, 3, 5, 7), numbers(3, 7, 4), 2),  # a call for each index of the outer axis
        (numbers(40, 2, 3, 4), numbers(2, 4, 3), 0),  # too many of them
        (numbers(1, 9), numbers(9, 1), 1),
        (numbers(6, 1), numbers(1, 6), 1),
        ((lambda pair: (pair[0][1:, 2:9:2], pair[1][1:, 2:9:2]))(numbers(6, 10)), numbers(4, 3), 0),
        ((lambda pair: (pair[0][1:, 2:9], pair[1][1:, 2:9]))(numbers(6, 10)), numbers(7, 3), 1),
        (numbers(70, 33), numbers(33, 130), 1),
    ):
        yield a, x, b, y, is_by_cublas


def test_products_are_those_of_numpy_by_cublas_where_it_has_a_word_for_them(with_cublas):
    device, calls = with_cublas
    for a, x, b, y, is_by_cublas in walks(device, np.random.default_rng(1)):
        before = calls()
        np.testing.assert_allclose((a @ b).numpy(), x @ y, rtol=1e-5, atol=1e-5)
        assert calls() - before == is_by_cublas, (a.shape, b.shape)


def test_recorded_products_replay_and_are_not_fused_with_what_follows(with_cublas):
    device, calls = with_cublas
    x = ow.tensor(np.ones((200, 200), np.float32), device=device)
    step = ow.compile(lambda: ((x @ x) * 2.0 + 1.0).relu(), device=device)
    before = device.stats.dispatches
    step()
    assert device.stats.dispatches - before == 2  # the product, and all that follows as one
    for _ in range(3):
        assert step()[0, 0].item() == 401.0
    assert calls() >= 1


def test_factors_are_rounded_where_the_user_says_so_and_nowhere_else(with_cublas):
    device, _ = with_cublas
    for precision, expected in (("highest", 1 + 2**-12), ("high", 1.0), ("medium", 1.0), ("highest", 1 + 2**-12)):
        ow.set_float32_matmul_precision(precision)
        x = ow.tensor([[1 + 2**-12]], device=device)
        assert (x @ ow.ones((1, 1), device=device)).item() == expected
    ow.set_float32_matmul_precision("high")
    assert (ow.tensor([[1 + 2**-10]], device=device) @ ow.ones((1, 1), device=device)).item() == 1 + 2**-10
    ow.set_float32_matmul_precision("medium")
    assert (ow.tensor([[1 + 2**-10]], device=device) @ ow.ones((1, 1), device=device)).item() == 1.0
    with pytest.raises(ValueError, match="one of highest, high, medium"):
        ow.set_float32_matmul_precision("low")
