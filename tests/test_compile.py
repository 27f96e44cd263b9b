"""Compiled steps: recorded once, replayed as one submit, with the same numbers as without."""

import gc
import warnings

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import UnsupportedError


def make_model(device, seed=0):
    rng = np.random.default_rng(seed)
    params = [
        ow.Parameter(rng.standard_normal(shape).astype(np.float32) * 0.3, device=device)
        for shape in ((5, 16), (16,), (16, 3), (3,))
    ]
    optimizer = ow.optim.AdamW(params, lr=1e-2)

    def train_step(x, y):
        optimizer.zero_grad()
        w1, b1, w2, b2 = params
        loss = ow.cross_entropy((x @ w1 + b1).relu() @ w2 + b2, y)
        loss.backward()
        optimizer.step()
        return loss

    return params, optimizer, train_step


def batches(count, rows=8):
    rng = np.random.default_rng(7)
    for _ in range(count):
        yield rng.standard_normal((rows, 5)).astype(np.float32), rng.integers(0, 3, rows).astype(np.int32)


def test_a_compiled_step_gives_the_same_numbers_as_an_eager_one(device):
    eager_params, _, eager = make_model(device)
    params, _, train_step = make_model(device)
    step = ow.compile(train_step, device=device)
    for x, y in batches(10):
        want = eager(ow.tensor(x, device=device), ow.tensor(y, device=device)).item()
        assert step(x, y).item() == want
    for got, want in zip(params, eager_params, strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_replay_is_one_submit_with_nothing_made_and_nothing_read(device):
    _, _, train_step = make_model(device)
    step = ow.compile(train_step, device=device)
    (x, y), *_ = batches(1)
    for _ in range(3):
        step(x, y)
    before = device.stats.copy()
    step(x, y)
    cost = device.stats - before
    assert (cost.submits, cost.replays, cost.bytes_down, cost.pipelines) == (1, 1, 0, 0)
    assert cost.bytes_up == x.nbytes + y.nbytes
    assert cost.bind_groups == 0


def test_results_stay_when_the_step_is_replayed(device):
    _, _, train_step = make_model(device)
    step = ow.compile(train_step, device=device)
    losses = [step(x, y) for x, y in batches(5)]
    values = [loss.item() for loss in losses]
    assert len(set(values)) == 5
    _, _, eager = make_model(device)
    assert values == [eager(ow.tensor(x, device=device), ow.tensor(y, device=device)).item() for x, y in batches(5)]


def test_each_shape_is_recorded_once(device):
    calls = []

    def double(x):
        calls.append(x.shape)
        return x * 2.0

    step = ow.compile(double, device=device)
    for rows in (2, 3, 2, 3):
        assert step(np.ones((rows,), np.float32)).tolist() == [2.0] * rows
    assert calls == [(2,), (3,)]


def test_constants_are_part_of_the_recording(device):
    step = ow.compile(lambda x, factor: x * factor, device=device)
    assert [step([1.0], factor).tolist() for factor in (2.0, 3.0, 2.0)] == [[2.0], [3.0], [2.0]]


def test_a_tensor_made_inside_is_a_constant_of_the_recording(device):
    step = ow.compile(lambda x: x * ow.tensor([2.0, 3.0], device=device) + ow.ones((2,), device=device), device=device)
    for _ in range(3):
        assert step([1.0, 1.0]).tolist() == [3.0, 4.0]


def test_results_keep_their_nesting(device):
    step = ow.compile(lambda x: {"a": [x * 2.0, (x + 1.0, None)]}, device=device)
    got = step([1.0])
    assert got["a"][0].tolist() == [2.0]
    assert got["a"][1][0].tolist() == [2.0]
    assert got["a"][1][1] is None


def test_gradients_accumulate_across_replays_as_they_do_eagerly(device):
    w = ow.Parameter([1.0], device=device)
    ow.optim.SGD([w], lr=1.0)

    def accumulate(x):
        (w * x).sum().backward()

    step = ow.compile(accumulate, device=device)
    for x in ([1.0], [2.0], [3.0]):
        step(x)
    assert w.grad.tolist() == [6.0]
    w.grad = None
    step([5.0])
    assert w.grad.tolist() == [5.0]


def test_reading_a_value_inside_is_refused(device):
    step = ow.compile(lambda x: x * x.sum().item(), device=device)
    with pytest.raises(UnsupportedError, match="cannot be read inside a compiled step"):
        step([1.0])
    assert (ow.ones((2,), device=device) + 1.0).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda x: x.shape[0], "must return tensors"),
        (lambda x: ow.optim.SGD([ow.Parameter([1.0], device=x.device)]), "outside a compiled step"),
        (lambda x: ow.compile(lambda y: y * 1.0, device=x.device)(x), "inside another"),
    ],
)
def test_what_cannot_be_recorded_is_refused(device, step, message):
    with pytest.raises(UnsupportedError, match=message):
        ow.compile(step, device=device)([1.0])


def test_a_dropped_compiled_step_gives_its_memory_back(device):
    gc.collect()
    before = device.memory_stats().live_buffers
    step = ow.compile(lambda x: (x * 2.0 + 1.0).exp(), device=device)
    step([1.0, 2.0])
    assert device.memory_stats().live_buffers > before
    del step
    gc.collect()
    assert device.memory_stats().live_buffers == before


@pytest.mark.parametrize("ending", ["replaced", "dropped", "fails"])
def test_recording_again_and_again_uses_the_memory_of_recordings_that_have_gone(device, ending):
    weight = ow.Parameter(np.ones((64, 64), np.float32), device=device)

    def step(x):
        total = (x @ weight).sum()
        return 0 if ending == "fails" else total

    held = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        kept = ow.compile(step, device=device)
        for _ in range(4):
            for rows in range(8, 168, 8):
                index = kept if ending == "replaced" else ow.compile(step, device=device)
                if ending == "fails":
                    with pytest.raises(UnsupportedError):
                        index(np.ones((rows, 64), np.float32))
                else:
                    assert index(np.ones((rows, 64), np.float32)).item() == rows * 64 * 64
            gc.collect()
            now = device.memory_stats()
            held.append(now.live_bytes + now.pooled_bytes)
    assert held[1] == held[3]


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
def test_1000_training_steps_leave_the_live_buffer_count_where_it_was(device, compiled):
    gc.collect()  # what other tests left
    _, _, train_step = make_model(device)
    step = ow.compile(train_step, device=device) if compiled else train_step
    (x, y), *_ = batches(1)
    x, y = ow.tensor(x, device=device), ow.tensor(y, device=device)
    counts = {}
    for number in range(1, 1001):
        loss = step(x, y)
        if number in (10, 1000):
            loss.item()
            counts[number] = device.memory_stats()
    assert counts[1000].live_buffers == counts[10].live_buffers
    assert counts[1000].live_bytes == counts[10].live_bytes
    assert counts[1000].allocated == counts[10].allocated


def test_a_training_step_is_recorded_once(device):
    calls = []
    _, _, train_step = make_model(device)

    def counted(x, y):
        calls.append(1)
        return train_step(x, y)

    step = ow.compile(counted, device=device)
    for x, y in batches(4):
        step(x, y)
    assert len(calls) == 1
