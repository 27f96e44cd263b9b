"""The checks of `ow.debug`: indices in tensors that are out of range."""

import asyncio
import threading

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import nn, ops
from optirs_web.errors import ShapeError, UnsupportedError

CASES = {
    "cross_entropy": (
        lambda x, i: ow.cross_entropy(x, i),
        [1, 3],
        "cross_entropy: 3 at position (1,) is none of the 3 classes, 0 to 2",
    ),
    "cross_entropy of images": (
        lambda x, i: ow.cross_entropy(x.reshape(1, 3, 2), i),
        [[1, -1]],
        "cross_entropy: -1 at position (0, 1) is none of the 3 classes, 0 to 2",
    ),
    "nll_loss": (lambda x, i: ops.nll_loss(x, i), [3, 0], "nll_loss: 3 at position (0,)"),
    "embedding": (
        lambda x, i: ops.embedding(x, i),
        [[0, -1]],
        "embedding: -1 at position (0, 1) is none of the 2 indices, 0 to 1",
    ),
    "take": (lambda x, i: ops.take(x, i), [-2, -3], "take: -3 at position (1,) is none of the 2 indices, -2 to 1"),
    "brackets": (lambda x, i: x[:, i], [3], "take: 3 at position (0,)"),
    "gather": (
        lambda x, i: ops.gather(x, i),
        [[0], [3]],
        "gather: 3 at position (1, 0) is none of the 3 indices, -3 to 2",
    ),
    "scatter_add": (
        lambda x, i: ops.scatter_add(x, i, ow.ones((2, 1), x.device)),
        [[5], [0]],
        "scatter_add: 5 at position (0, 0)",
    ),
    "one_hot": (lambda x, i: nn.functional.one_hot(i, 3), [0, 3], "one_hot: 3 at position (1,)"),
}


@pytest.mark.parametrize(("call", "wrong", "message"), CASES.values(), ids=CASES)
def test_an_index_that_names_nothing_is_named(device, call, wrong, message):
    x, index = ow.zeros((2, 3), device), ow.tensor(wrong, device=device)
    call(x, index)
    with ow.debug(), pytest.raises(ShapeError) as caught:
        call(x, index)
    assert message in str(caught.value)
    with ow.debug():
        call(x, ow.tensor(np.zeros_like(wrong, np.int32), device=device))


def test_ignored_targets_are_no_mistake():
    with ow.debug():
        loss = ow.cross_entropy(ow.zeros((2, 3), device="cpu"), ow.tensor([-100, 0], device="cpu"))
    assert loss.item() == pytest.approx(np.log(3))


def test_a_compiled_step_is_checked_in_the_block_and_replayed_outside(device):
    model = nn.Linear(4, 3, device=device)
    optimizer = ow.optim.SGD(model.parameters(), lr=0.1)

    @ow.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = ow.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x = np.ones((2, 4), np.float32)
    first = step(x, np.array([0, 1], np.int32)).item()
    before = device.stats.copy()
    with ow.debug():
        with pytest.raises(ShapeError, match=r"cross_entropy: 7 at position \(1,\)"):
            step(x, np.array([0, 7], np.int32))
        second = step(x, np.array([0, 1], np.int32)).item()
    assert (device.stats - before).bytes_down > 0
    before = device.stats.copy()
    third = step(x, np.array([0, 1], np.int32))
    assert (device.stats - before).bytes_down == 0
    assert first > second > third.item()


def test_a_compiled_step_takes_and_returns_in_the_block_what_it_does_outside(device, open_device):
    w = ow.Parameter(np.eye(2, dtype=np.float32), device=device)
    step = ow.compile(lambda x: x @ w, device=device)
    x = ow.ones((1, 2), device=open_device("cpu"))  # read and uploaded where the step is on another device
    with ow.debug():
        result = step(x)
    assert (result.device, result.requires_grad, result.tolist()) == (device, False, step(x).tolist())


@pytest.mark.parametrize("numbers", [[1.7, 0.2], [True, False]])
def test_only_int32_numbers_are_classes(numbers):
    with pytest.raises(UnsupportedError, match=r"one_hot needs int32 class numbers, not (float32|bool)"):
        nn.functional.one_hot(ow.tensor(numbers, device="cpu"), 3)


def test_a_block_is_of_its_thread_and_task_and_the_switch_of_all():
    def is_checked():
        try:
            ops.take(ow.zeros((1,), device="cpu"), ow.tensor([5], device="cpu"))
        except ShapeError:
            return True
        return False

    def in_a_thread():
        result = []
        thread = threading.Thread(target=lambda: result.append(is_checked()))
        thread.start()
        thread.join()
        return result == [True]

    async def in_tasks():
        async def task(enabled):
            with ow.debug(enabled):
                await asyncio.sleep(0)
                return is_checked()

        return await asyncio.gather(task(True), task(False), task(True))

    with ow.debug():
        assert (is_checked(), in_a_thread()) == (True, False)
    assert asyncio.run(in_tasks()) == [True, False, True]
    assert not is_checked()
    ow.set_debug(True)
    try:
        assert (is_checked(), in_a_thread()) == (True, True)
        with ow.debug(False):
            assert not is_checked()
    finally:
        ow.set_debug(False)
    assert ow.debug()(is_checked)()
