"""The device `cuda`: the order of streams, graphs, errors, and the cache on disk."""

import asyncio
import json
import os
import threading
from itertools import pairwise

import numpy as np
import pytest
import software_cuda
from processes import run_python
from software_cuda import amounts, opened

import optirs_web as ow
from optirs_web.errors import (
    DeviceLostError,
    DeviceNotAvailableError,
    LaunchError,
    OptirsError,
    OutOfDeviceMemoryError,
    ShaderError,
)
from optirs_web.native_backends.cuda import backend as cuda_listing
from optirs_web.runtime import user_cache
from optirs_web.runtime.timing import GPU_TIMESTAMPS

# What it computes.


LR = 0.002


def training(device):
    """A small model of many kinds of kernels: the losses of a compiled step, and the parameters after it.

    The state of `w`, which is large enough, is of 8 bits.
    """
    ow.manual_seed(3)
    random = np.random.default_rng(0)
    images, labels = random.random((24, 6), np.float32), random.integers(0, 5, 24).astype(np.int32)
    shapes = {"table": (5, 6), "w": (6, 700), "b": (700,), "v": (700, 5)}
    leaves = {
        name: ow.Parameter(random.standard_normal(shape).astype(np.float32) * 0.5, device=device)
        for name, shape in shapes.items()
    }
    optimizer = ow.optim.AdamW(leaves.values(), lr=LR, state_dtype="8bit")

    def train_step(x, labels):
        optimizer.zero_grad()
        hidden = (x + ow.ops.embedding(leaves["table"], labels)) @ leaves["w"] + leaves["b"]
        hidden = ow.ops.dropout(ow.ops.gelu(hidden), 0.2)
        loss = ow.cross_entropy(ow.ops.layer_norm(hidden, (700,)) @ leaves["v"], labels)
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step, device=device)
    losses = [step(images, labels).item() for _ in range(6)]
    return losses, {name: leaf.numpy() for name, leaf in leaves.items()}


def test_a_model_trains_as_on_the_processor(cuda, open_device):
    losses, leaves = training(cuda)
    expected, expected_leaves = training(open_device("cpu"))
    assert losses == pytest.approx(expected, rel=1e-5)  # 3e-7 was found
    assert losses[-1] < 0.8 * losses[0]
    for name, values in expected_leaves.items():
        difference = np.abs(leaves[name] - values)  # 1.2e-7 was found, an ulp
        # Sums in another order may have a few of the state's 8 bits rounded the other way, each a part of a step.
        assert np.mean(difference > 1e-6) <= (0.01 if name == "w" else 0)
        assert difference.max() < LR


def test_bytes_go_to_the_device_and_back_whatever_happens_to_them_meanwhile(cuda):
    """More than both pieces of page-locked memory hold, and sizes that are no multiples of anything."""
    values = np.arange((9 << 18) + 5, dtype=np.int32)
    kept = values.copy()
    x = ow.tensor(values, device=cuda)
    values[:] = -1
    small = [ow.tensor([float(number)] * 3, device=cuda) for number in range(300)]
    assert (x.numpy() == kept).all()
    assert [tensor.tolist()[0] for tensor in small] == list(range(300))


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


def test_a_command_of_optirs_web_takes_the_driver_in_software(cuda):
    lines = run_python(
        """
        import runpy, sys
        sys.argv = ["software_cuda", "parity", "negate", "--device", "cuda", "--json"]
        runpy.run_module("software_cuda", run_name="__main__")
        """,
        PYTHONPATH=software_cuda.HERE.parent,
    )
    (row,) = json.loads("".join(lines))["rows"]
    assert (row["name"], row["ulps"]) == ("negate", {"cuda": 0})


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
    with pytest.raises(LaunchError, match="refers to freed memory"):
        step([1.0, 1.0])
    with pytest.raises(OptirsError, match=r"freed memory .*is used"):
        w.tolist()
    assert (ow.ones((3,), device=cuda) + 1.0).tolist() == [2.0] * 3


def test_a_profile_goes_by_the_devices_clock(cuda):
    x = ow.ones((1 << 12,), device=cuda)
    with ow.profile(cuda) as profile:
        (x + 1.0).tolist()
        (x * 2.0).tolist()
    assert profile.clock == GPU_TIMESTAMPS
    runs = profile.kernels
    assert [run.name for run in runs if run.name in ("add", "multiply")] == ["add", "multiply"]
    assert all(run.start <= run.end for run in runs)
    assert all(first.end <= second.start + 1e-6 for first, second in pairwise(runs))


# What goes wrong.


def test_a_closed_device_leaves_nothing_to_those_who_share_its_context(driver):
    driver.set(devices=2)
    before = amounts(driver)
    with opened() as device:
        _, step = adamw(device)
        step()
        x = ow.ones((5000,), device=device)
        assert (x + 1.0).sum().item() == 10000.0
        with ow.profile(device):
            x.sum().item()
        assert driver.count("allocations") > before["allocations"]
    assert amounts(driver) == before
    assert driver.count("pushed contexts") == 0


def test_a_read_that_nobody_waits_for_is_given_back_with_the_device(driver):
    driver.set(devices=2)
    before = amounts(driver)
    with opened() as device:
        x = ow.ones((64,), device=device)
        device.flush()
        reading = device.backend.read_async(x.view.buffer.handle, 0, 256)
    assert amounts(driver) == before
    with pytest.raises(DeviceLostError, match="'cuda' was closed"):
        asyncio.run(_awaited(reading))
    assert amounts(driver) == before


def test_a_profiled_operation_that_fails_gives_its_events_back(driver):
    driver.set(devices=2)
    with opened() as device:
        x = ow.ones((64,), device=device) + 1.0
        backend, handle = device.backend, x.view.buffer.handle
        device.synchronize()
        freed = backend.allocate(256)
        copies = [backend.copy((handle, 0, 256), (to, 0, 256)) for to in (backend.allocate(256), freed)]
        backend.free(freed)
        events = []
        for _ in range(3):
            with pytest.raises(LaunchError, match=r"freed memory .*is used"):
                backend.submit_timed(copies)
            events.append(driver.count("events"))
        assert events[0] == events[2]


def test_a_closed_device_compiles_nothing(driver, monkeypatch):
    driver.set(devices=2)
    monkeypatch.setattr(user_cache, "folder", lambda: os.devnull)
    with opened() as device:
        kernels = []
        monkeypatch.setattr(device.backend, "expect", kernels.append)
        ow.compile(lambda: ow.ones((4,), device=device).tanh(), device=device)()
        monkeypatch.undo()
        device.backend.expect(kernels[0])
    with pytest.raises(DeviceLostError, match="'cuda' was closed"):
        device.backend.expect(kernels[0])


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
        (False, "in one of the operations '[a-z_0-9]+', 'exp'"),
        (True, "in the operation 'exp'"),
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
            assert "restart it and load a checkpoint" in str(caught.value)
            with pytest.raises(DeviceLostError, match="an illegal memory access"):
                device.synchronize()
            with pytest.raises(DeviceNotAvailableError, match="after a failed kernel CUDA is unusable"):
                ow.device("cuda:1")
            assert device.lost
        driver.heal()


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
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    for path, content in kept.items():
        path.write_bytes(content[:-1])
    assert run().keys() == times.keys()
    assert all(path.stat().st_size == len(content) for path, content in kept.items())
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
