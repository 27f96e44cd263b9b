"""`nn.DataLoader`: its batches, their order, its memory, and how it continues after an interruption."""

import gc
import json
from array import array

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import ShapeError, UnsupportedError
from optirs_web.nn import DataLoader, TensorDataset

IMAGES = np.arange(14, dtype=np.float32).reshape(7, 2)
LABELS = np.arange(7, dtype=np.int32)


class Squares:
    """A data set that can only be indexed."""

    def __len__(self):
        return 7

    def __getitem__(self, number):
        return IMAGES[number], int(LABELS[number]) ** 2


DATASETS = {
    "an array": (IMAGES, IMAGES),
    "a buffer": (memoryview(array("f", range(7))), np.arange(7, dtype=np.float32)),
    "bytes of images": (IMAGES.astype(np.uint8), IMAGES.astype(np.int32)),
    "a tuple of arrays": ((IMAGES, LABELS), (IMAGES, LABELS)),
    "a list of arrays": ([IMAGES, LABELS], (IMAGES, LABELS)),
    "a dict of arrays": ({"x": IMAGES, "y": LABELS}, {"x": IMAGES, "y": LABELS}),
    "a data set of lists": (TensorDataset(IMAGES.tolist(), LABELS.tolist()), (IMAGES, LABELS)),
    "numbers": ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], np.arange(7, dtype=np.float32)),
    "pairs": (list(zip(IMAGES, LABELS.tolist(), strict=True)), (IMAGES, LABELS)),
    "dicts": ([{"x": x, "y": int(y)} for x, y in zip(IMAGES, LABELS, strict=True)], {"x": IMAGES, "y": LABELS}),
    "what can be indexed": (Squares(), (IMAGES, LABELS**2)),
}


def assert_same(batch, whole, numbers):
    if isinstance(whole, dict):
        assert list(batch) == list(whole)
        batch, whole = tuple(batch.values()), tuple(whole.values())
    if isinstance(whole, tuple):
        assert isinstance(batch, tuple)
        for tensor, its_whole in zip(batch, whole, strict=True):
            assert_same(tensor, its_whole, numbers)
        return
    assert batch.dtype == str(whole.dtype)
    assert batch.numpy().tolist() == whole[numbers].tolist()


@pytest.mark.parametrize("name", DATASETS)
def test_batches_are_the_rows_in_order(device, name):
    dataset, whole = DATASETS[name]
    loader = DataLoader(dataset, batch_size=3, device=device)
    assert len(loader) == 3
    for batch, numbers in zip(loader, ([0, 1, 2], [3, 4, 5], [6]), strict=True):
        assert_same(batch, whole, numbers)


def test_a_last_batch_that_is_smaller_can_be_left_out(device):
    loader = DataLoader(LABELS, batch_size=3, drop_last=True, device=device)
    assert len(loader) == 2
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5]]


def test_samples_can_be_joined_by_the_user(device):
    loader = DataLoader(["a", "bcd"], 2, collate_fn=lambda words: np.array([len(word) for word in words], np.int32),
                        device=device)  # fmt: skip
    assert [batch.tolist() for batch in loader] == [[1, 3]]


# Order.


def orders(loader, epochs):
    return [[number for batch in loader for number in batch.tolist()] for _ in range(epochs)]


def test_each_epoch_has_an_order_of_its_own_and_a_seed_gives_them_again(device):
    expected = orders(DataLoader(LABELS, 2, shuffle=True, seed=4, device=device), 3)
    assert all(sorted(order) == LABELS.tolist() for order in expected)
    assert len({tuple(order) for order in expected}) == 3
    assert orders(DataLoader(LABELS, 3, shuffle=True, seed=4, device=device), 3) == expected
    assert orders(DataLoader(LABELS, 2, shuffle=True, seed=5, device=device), 3) != expected


def test_the_order_is_the_same_on_every_platform(numerics):
    epochs = [[[8, 6, 3, 1], [0, 5, 9, 7], [4, 2]], [[7, 1, 9, 6], [8, 4, 3, 2], [5, 0]]]
    assert numerics("shuffled", 10, 4, 7) == epochs


def test_a_loop_that_is_left_begins_the_next_epoch(device):
    loader = DataLoader(LABELS, 2, shuffle=True, device=device)
    expected = orders(DataLoader(LABELS, 2, shuffle=True, device=device), 2)
    assert next(iter(loader)).tolist() == expected[0][:2]
    assert orders(loader, 1) == expected[1:]


# Memory and work.


@pytest.mark.parametrize("name", ["a tuple of arrays", "what can be indexed"])
def test_two_buffers_for_each_array_take_turns(device, name):
    dataset, _ = DATASETS[name]
    gc.collect()
    device.trim()
    before, up = device.memory_stats(), device.stats.bytes_up
    loader = DataLoader(dataset, batch_size=2, device=device)
    handles = set()
    for epoch in range(3):
        for x, y in loader:
            handles |= {x.view.buffer.handle, y.view.buffer.handle} if epoch else set()
    after = device.memory_stats()
    assert after.allocated - before.allocated <= 2 * 2
    assert after.live_bytes - before.live_bytes + after.pooled_bytes - before.pooled_bytes <= 2 * 2 * 256
    assert device.stats.bytes_up - up == 3 * (IMAGES.nbytes + LABELS.nbytes)


def test_what_was_handed_out_never_changes(device):
    kept = list(DataLoader(LABELS, 2, device=device))
    later = list(DataLoader(LABELS + 10, 2, device=device))
    assert [batch.tolist() for batch in kept] == [[0, 1], [2, 3], [4, 5], [6]]
    assert [batch.tolist() for batch in later] == [[10, 11], [12, 13], [14, 15], [16]]


def test_the_device_has_its_work_before_the_host_picks_the_next_batch(device):
    submits = []

    class Watched(Squares):
        def __getitem__(self, number):
            submits.append(device.stats.submits)
            return super().__getitem__(number)

    device.synchronize()
    before, down = device.stats.submits, device.stats.bytes_down
    for x, _ in DataLoader(Watched(), 1, device=device):
        x * 2.0
    assert [submit - before for submit in submits] == list(range(7))
    assert device.stats.bytes_down == down


WIDE = np.ones((6, 8, 4096), np.float32)  # batches too large to be sent along with other work


def work_of(device, loader):
    """Return the kinds of the device's work, in the order of time, for a loop that reads a value in each step."""
    device.synchronize()
    with ow.profile(device) as profile:
        for x in loader:
            (x * 2.0).sum().item()
    return [span.kind for span in profile.host if span.kind in ("submit", "write", "read")]


def test_the_next_batch_is_uploaded_between_a_steps_submit_and_its_wait(device):
    actual = work_of(device, DataLoader(WIDE, 2, device=device))
    assert actual == ["write", *["submit", "write", "read"] * 2, "submit", "read"]
    actual = work_of(device, DataLoader(WIDE, 2, device=device, prefetch=False))
    assert actual == ["write", "submit", "read"] * 3


def test_a_batch_that_is_uploaded_ahead_takes_no_third_buffer(device):
    gc.collect()
    device.trim()
    before = device.memory_stats()
    loader = DataLoader(WIDE, 2, device=device)
    handles = set()
    for _ in range(3):
        for x in loader:
            handles.add(x.view.buffer.handle)
            device.synchronize()
    assert len(handles) == 2
    assert device.memory_stats().allocated - before.allocated == 2


def test_batches_that_are_loaded_ahead_are_those_in_order(device):
    loader = DataLoader(LABELS, 2, shuffle=True, seed=3, device=device)
    plain = DataLoader(LABELS, 2, shuffle=True, seed=3, device=device, prefetch=False)
    assert orders(loader, 3) == orders(plain, 3)
    batches = iter(loader)
    assert next(batches).tolist() == next(iter(plain)).tolist()
    assert loader.state_dict() == {"seed": 3, "epoch": 3, "position": 2}


def test_a_loop_that_is_left_loads_nothing_more(device):
    picked = []

    class Watched(Squares):
        def __getitem__(self, number):
            picked.append(number)
            return super().__getitem__(number)

    for x, _ in DataLoader(Watched(), 1, device=device):
        x.tolist()
        break
    gc.collect()
    assert device.meanwhile == {}
    device.synchronize()
    assert picked == [0, 1]


def test_what_fails_ahead_is_raised_when_it_is_asked_for(device):
    class Failing(Squares):
        def __getitem__(self, number):
            if number == 1:
                raise OSError("cannot read sample 1")
            return super().__getitem__(number)

    batches = iter(DataLoader(Failing(), 1, device=device))
    x, _ = next(batches)
    assert x.tolist() == IMAGES[:1].tolist()
    with pytest.raises(OSError, match="cannot read sample 1"):
        next(batches)


def test_batches_feed_a_compiled_step(device):
    w = ow.Parameter([0.0, 0.0], device=device)
    optimizer = ow.optim.SGD([w], lr=0.5)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = (x @ w - y).sum() * (x @ w - y).sum()
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step, device=device)
    x = np.eye(2, dtype=np.float32)
    for _ in range(20):
        for batch in DataLoader((x, np.array([3.0, -1.0], np.float32)), 1, shuffle=True, device=device):
            step(*batch)
    assert w.tolist() == pytest.approx([3.0, -1.0])


def test_a_compiled_step_does_not_load(device):
    loader = DataLoader(LABELS, 2, device=device)
    with pytest.raises(UnsupportedError, match="cannot load batches"):
        ow.compile(lambda x: next(iter(loader)), device=device)([1.0])


# Going on.


@pytest.mark.parametrize("handed_out", range(5))
def test_a_saved_state_goes_on_where_it_was(device, handed_out):
    expected = orders(DataLoader(LABELS, 2, shuffle=True, seed=9, device=device), 3)
    loader = DataLoader(LABELS, 2, shuffle=True, seed=9, device=device)
    orders(loader, 1)
    batches = iter(loader)
    seen = [number for _ in range(handed_out) for number in next(batches).tolist()]
    state = json.loads(json.dumps(loader.state_dict()))
    other = DataLoader(LABELS, 3, shuffle=True, device=device)
    other.load_state_dict(state)
    assert seen + orders(other, 1)[0] == expected[1]
    assert orders(other, 1)[0] == expected[2]


@pytest.mark.parametrize("state", [{}, {"seed": 0, "epoch": 0, "position": 8}, {"seed": 0, "epoch": -1, "position": 0}])
def test_a_state_of_something_else_is_refused(state):
    loader = DataLoader(LABELS, 2, device="cpu")
    with pytest.raises(ValueError, match="state of"):
        loader.load_state_dict(state)


# Mistakes.


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"dataset": LABELS, "batch_size": 0}, ValueError, "batch_size"),
        ({"dataset": LABELS, "seed": -1}, ValueError, "seed"),
        ({"dataset": (LABELS, IMAGES[:3])}, ShapeError, "one length, not 7, 3"),
        ({"dataset": iter([1, 2])}, UnsupportedError, "no len"),
        ({"dataset": ow.ones((3,), device="cpu")}, UnsupportedError, "must be on the host"),
        ({"dataset": [[1.0], [1.0, 2.0]], "batch_size": 2}, ShapeError, "one shape"),
        ({"dataset": ["a"]}, UnsupportedError, "cannot be made from str"),
    ],
)
def test_mistakes_are_named(arguments, error, match):
    with pytest.raises(error, match=match):
        list(DataLoader(**arguments, device="cpu"))
