"""Memory of a device: how it is reused, what limits it, and what happens when there is none left."""

import gc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies
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


BYTES = strategies.integers(0, 100_000)
SIZES = strategies.sampled_from([256, 320, 512, 4096])


@given(strategies.lists(strategies.one_of(SIZES, strategies.integers(0, 30), strategies.just("drain")), max_size=60))
def test_the_pool_hands_out_nothing_twice_and_counts_what_it_has(actions):
    """A size is a request, a number below 256 gives back what was handed out so long ago."""
    pool, made, used = Pool(), [], []
    free = set()
    for action in actions:
        if action == "drain":
            assert {handle for handle, _ in pool.drain()} == {handle for handle, _ in free}
            free.clear()
        elif action >= 256:
            handle = pool.take(action)
            if handle is None:
                assert action not in {size for _, size in free}
                handle = len(made)
                made.append(action)
            else:
                free.remove((handle, action))
            used.append((handle, action))
        elif action < len(used):
            handle, size = used.pop(action)
            pool.put(handle, size)
            free.add((handle, size))
        assert not free & set(used)
        assert pool.nbytes == sum(size for _, size in free)
        assert pool.sizes() == Counter(size for _, size in free)


def test_a_device_counts_what_is_in_use_whatever_is_taken_and_let_go(device):
    gc.collect()

    @settings(max_examples=25)
    @given(strategies.lists(strategies.tuples(strategies.sampled_from(["pool", "own", "let go"]), BYTES), max_size=12))
    def check(actions):
        device.trim()
        before = device.memory_stats()
        assert before.pool == {}
        kept = []
        for action, number in actions:
            if action != "let go":
                kept.append(device.allocate(number) if action == "pool" else device.allocate_zeroed(4 * number + 4))
            elif kept:
                kept.pop(number % len(kept)).release()
            now = device.memory_stats()
            assert len({buffer.handle for buffer in kept}) == len(kept) == now.live_buffers - before.live_buffers
            assert now.asked_bytes - before.asked_bytes == sum(array.nbytes for array in kept)
            assert now.live_bytes - before.live_bytes >= now.asked_bytes - before.asked_bytes
            assert now.pooled_bytes == sum(size * number for size, number in now.pool.items())
        kept.clear()
        assert device.memory_stats().live_bytes == before.live_bytes

    check()


def test_fragmentation_is_what_nobody_asked_for_and_what_the_largest_request_leaves(device):
    gc.collect()
    device.trim()
    before = device.memory_stats()
    kept = [device.allocate(1000), device.allocate(1025)]
    let_go = [device.allocate(nbytes) for nbytes in (512, 512, 2048)]
    let_go.clear()
    now = device.memory_stats()
    assert now.live_bytes - before.live_bytes == 1024 + 1280
    assert now.asked_bytes - before.asked_bytes == 1000 + 1025
    assert now.internal_fragmentation == pytest.approx(1 - now.asked_bytes / now.live_bytes)
    assert (now.pool, now.pooled_bytes, now.largest_free) == ({512: 2, 2048: 1}, 3072, 2048)
    assert now.external_fragmentation == pytest.approx(1 / 3)
    assert now.pooled_share == pytest.approx(3072 / (now.live_bytes + 3072))
    device.trim()
    assert device.memory_stats().trims - now.trims == 1
    assert device.memory_stats().external_fragmentation == 0
    del kept


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
    count = limit // 4 + (3 << 18)  # larger than the whole limit, whatever else is in use
    with pytest.raises(OutOfDeviceMemoryError, match=f"asked for {4 * count:,} bytes") as caught:
        ow.zeros((count,), device=device)
    assert (caught.value.asked, caught.value.limit) == (4 * count, limit)
    assert caught.value.in_use == limit - (1 << 20)
    assert f"{limit:,} bytes" in str(caught.value)
    assert caught.value.excess == 4 * count - limit
    assert ow.ones((1000,), device=device).sum().item() == 1000


def test_the_pool_is_trimmed_before_the_limit_refuses(device, limited):
    limited(1 << 20)
    _ = ow.zeros((150_000,), device=device)
    del _
    assert device.memory_stats().pooled_bytes > 0
    kept = ow.zeros((200_000,), device=device)
    assert (kept.size, device.memory_stats().pooled_bytes) == (200_000, 0)


def test_an_allocation_that_the_pool_made_room_for_is_counted_as_recovered(device, limited):
    limited(1 << 20)
    before = device.memory_stats()
    device.allocate(600_000).release()
    kept = device.allocate(700_000)
    after = device.memory_stats()
    assert (after.trims - before.trims, after.recovered - before.recovered) == (1, 1)
    assert kept.nbytes == 700_000


def test_the_last_resort_is_tried_after_the_pool_and_before_the_error(device, limited):
    limited(1 << 20)
    cache, expected = [device.allocate(600_000)], []

    def let_go(nbytes):
        expected.append((nbytes, device.memory_stats().pooled_bytes))
        cache.clear()

    device.last_resorts.append(let_go)
    try:
        device.allocate(300_000).release()
        kept = device.allocate(700_000)
        assert expected == [(700_000, 0)]
        with pytest.raises(OutOfDeviceMemoryError):
            device.allocate(400_000)
        assert len(expected) == 2
    finally:
        device.last_resorts.remove(let_go)
    assert kept.nbytes == 700_000


def test_the_last_resort_is_tried_between_the_two_tries_of_work_that_belongs_together(device, limited):
    limited(1 << 20)
    cache, made = [device.allocate(600_000)], []

    def work():
        made.append(len(cache))
        made.append(device.allocate(700_000))

    def let_go(nbytes):
        made.append(nbytes)
        cache.clear()

    device.last_resorts.append(let_go)
    try:
        device.all_or_nothing(work)
    finally:
        device.last_resorts.remove(let_go)
    assert made[:3] == [1, 700_000, 0]
    assert made[3].nbytes == 700_000


@pytest.mark.parametrize(
    ("asked", "in_use", "pooled", "limit", "excess", "words"),
    [
        (500, 800, 0, 1000, 300, "asked for 500 bytes with 800 in use, 0 pooled and a limit of 1,000 bytes, 300 bytes"),
        (500, 800, 30, 1000, 330, "with 800 in use, 30 pooled and a limit of 1,000 bytes, 330 bytes too many."),
        (5000, 800, 0, 1000, 4000, "a limit of 1,000 bytes, 4,000 bytes too many by itself."),
        (500, 100, 0, 1000, None, "a limit of 1,000 bytes. Free tensors"),
        (500, 800, 0, None, None, "and an unknown device limit. Free tensors"),
    ],
)
def test_the_error_says_what_would_make_it_fit(asked, in_use, pooled, limit, excess, words):
    error = OutOfDeviceMemoryError(asked, in_use, limit, "cpu", pooled=pooled)
    assert (error.asked, error.in_use, error.pooled, error.limit, error.excess) == (
        asked,
        in_use,
        pooled,
        limit,
        excess,
    )
    assert words in str(error)
    for way_out in ("a smaller batch", "optirs_web.checkpoint", "optirs_web.set_memory_limit"):
        assert way_out in str(error)


def test_what_is_freed_for_the_excess_makes_it_fit(device, limited):
    limited(1 << 20)
    kept = [device.allocate(size_class(98_000)) for _ in range(8)]
    with pytest.raises(OutOfDeviceMemoryError) as caught:
        device.allocate(400_000)
    in_the_way = caught.value.excess
    while in_the_way > 0:
        in_the_way -= kept.pop().nbytes
    assert device.allocate(400_000).nbytes == 400_000
    assert len(kept) == 6


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
    requested, in_use, limit = lines[0].split()
    assert int(requested) == 64 << 20
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
    assert lines == ["OPTIRS_MEMORY_LIMIT must be a number of bytes, not '1GB'"]


def test_the_environments_limit_holds_from_the_first_allocation():
    lines = run_python(
        """
        import optirs_web as ow
        print(ow.memory_stats("cpu").limit, ow.ones((1000,), device="cpu").sum().item())
        try:
            ow.ones((100_000,), device="cpu")
        except ow.errors.OutOfDeviceMemoryError as error:
            print(error.limit)
        ow.set_memory_limit(None)
        print(ow.memory_stats("cpu").limit, ow.ones((100_000,), device="cpu").size)
        """,
        OPTIRS_MEMORY_LIMIT="100000",
    )
    assert lines == ["100000 1000.0", "100000", "None 100000"]
