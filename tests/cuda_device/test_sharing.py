"""Memory shared with other libraries on the same GPU. What these would do, the test does, or this library itself."""

import gc
import weakref

import numpy as np
import pytest
from software_cuda import amounts, opened

import optirs_web as ow
from optirs_web import dlpack_capsules
from optirs_web.errors import UnsupportedError


class Exporter:
    """A library that has an array, and notes what it is asked."""

    def __init__(self, x, **described):
        self.x, self.described, self.asked, self.ended = x, described, None, 0

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked = stream
        described, end = dlpack_capsules.consumed(self.x.__dlpack__(stream=stream))

        def ended():
            self.ended += 1
            end()

        return dlpack_capsules.capsule_of(described._replace(**self.described), ended, max_version, is_copied=False)


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
    addresses = [tensor.view.buffer.handle.address for tensor in (x, seen)]
    assert addresses[0] == addresses[1]
    assert ow.from_dlpack(x, copy=True).view.buffer.handle.address != addresses[0]


def test_walks_are_shared_as_they_are_and_what_is_no_walk_is_copied(cuda):
    x = ow.tensor(np.arange(24, dtype=np.float32).reshape(4, 6), device=cuda)
    for part in (x[1:, 1:5:2], x.T, x[2]):
        seen = ow.from_dlpack(part)
        assert seen.strided.strides == part.strided.strides
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


def test_what_was_lent_to_be_read_is_lent_on_as_such_or_copied(cuda):
    other = Exporter(ow.tensor([1.0, 2.0], device=cuda), is_read_only=True)
    x = ow.from_dlpack(other)
    address = x.view.buffer.handle.address

    def described(one, **options):
        result, end = dlpack_capsules.consumed(one.__dlpack__(**options))
        end()
        return result.address, result.is_read_only

    assert described(x, max_version=(1, 0)) == (address, True)
    assert described(x[1:], max_version=(1, 1)) == (address + 4, True)
    copied = [described(x), described(x, max_version=(0, 8)), described(x, max_version=(1, 0), copy=True)]
    assert [(copied_address != address, is_read_only) for copied_address, is_read_only in copied] == [(True, False)] * 3
    with pytest.raises(BufferError, match="lent read-only"):
        x.__dlpack__(copy=False)
    assert described(ow.from_dlpack(x), max_version=(1, 0)) == (address, True)
    assert described(x + 1.0, max_version=(1, 0))[1] is False


def test_a_parameter_of_another_librarys_array_has_memory_of_its_own(cuda):
    other = ow.tensor([1.0, 2.0], device=cuda)
    w = ow.Parameter(ow.from_dlpack(other))
    ow.optim.SGD([w], lr=1.0).step(grads=[ow.ones((2,), device=cuda)])
    assert (w.tolist(), other.tolist()) == ([0.0, 1.0], [1.0, 2.0])


def test_the_pool_does_not_reuse_memory_that_somebody_sees(cuda):
    x = ow.tensor(np.arange(300, dtype=np.float32), device=cuda) + 1.0
    address, buffer = x.view.buffer.handle.address, weakref.ref(x.view.buffer)
    described, end = dlpack_capsules.consumed(x.__dlpack__(stream=1))
    assert (described.address, described.device, described.shape) == (address, (2, 0), (300,))
    del x
    gc.collect()
    others = [ow.ones((300,), device=cuda) * 2.0 for _ in range(20)]
    assert address not in [other.view.buffer.handle.address for other in others]
    assert [other.sum().item() for other in others] == [600.0] * 20
    assert buffer() is not None
    end()
    assert buffer() is None


def test_a_consumers_stream_waits_for_the_work_so_far_and_this_one_for_the_consumers(cuda, driver):
    for stream, waits, settles in ((None, 1, 1), (2, 1, 1), (-1, 0, 0), (int(cuda.backend.stream), 1, 0)):
        x = ow.ones((4,), device=cuda) + 1.0
        before = driver.count("cuStreamWaitEvent"), driver.count("cuCtxSynchronize")
        _, end = dlpack_capsules.consumed(x.__dlpack__(stream=stream))
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
    _, end = dlpack_capsules.consumed(capsule)
    end()
    with pytest.raises(BufferError, match="was already consumed"):
        dlpack_capsules.consumed(capsule)


def test_what_cannot_be_shared_is_refused_or_goes_by_the_host(cuda, open_device):
    x = ow.ones((4,), device=cuda)
    with pytest.raises(BufferError, match="stream 0 no meaning"):
        x.__dlpack__(stream=0)
    with pytest.raises(BufferError, match=r"export x.float\(\)"):
        (x > 0.0).__dlpack__()
    assert np.from_dlpack(x, device="cpu").tolist() == [1.0] * 4
    assert ow.from_dlpack(np.arange(3, dtype=np.float32), device=cuda).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(BufferError, match="only by a copy"):
        ow.from_dlpack(np.arange(3), device=cuda, copy=False)
    for described in ({"kind": (2, 64)}, {"strides": (-1,)}, {"address": x.view.buffer.handle.address + 2}):
        other = Exporter(x, **described)
        with pytest.raises(UnsupportedError):
            ow.from_dlpack(other)
        assert other.ended == 1
    with pytest.raises(BufferError, match="of DLPack 9"):
        dlpack_capsules.consumed(_of_version(x, 9))


def _of_version(x, major):
    capsule = x.__dlpack__(max_version=(1, 0))
    structure = dlpack_capsules._Versioned.from_address(dlpack_capsules._pointer(id(capsule), b"dltensor_versioned"))
    structure.major = major
    return capsule


def test_memory_that_somebody_sees_outlives_the_device_and_is_given_back_by_its_last_user(driver):
    driver.set(devices=2)
    before = amounts(driver)
    with opened() as device:
        x = ow.ones((300,), device=device) + 1.0
        ends = [dlpack_capsules.consumed(x.__dlpack__(stream=1))[1] for _ in range(2)]
    left = {kind: count - before[kind] for kind, count in amounts(driver).items() if count != before[kind]}
    assert left == {"allocations": 1, "contexts": 1}
    ends[0]()
    assert driver.count("allocations") == before["allocations"] + 1
    ends[1]()
    assert amounts(driver) == before
    assert driver.count("pushed contexts") == 0
