"""Memory of a device: how it is reused, what limits it, and what happens when there is none left."""

import gc

import numpy as np
import pytest
from processes import run_python

import optirs_web as ow
from optirs_web.errors import OutOfDeviceMemoryError
from optirs_web.runtime.pool import Pool, size_class


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
