"""A step over some rows of a parameter reads and writes the named rows, and nothing else."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from optimizer_problems import relative_error
from sparse_problems import entries

import optirs_web as ow
from optirs_web.runtime.buffer import View


@contextmanager
def observed(device, monkeypatch):
    """A list of (kernel's name, views by name of their binding, workgroups) of each dispatch."""
    result = []
    dispatch = device.dispatch

    def note(kernel, views, workgroups, parameters=()):
        names = [binding.name for binding in kernel.bindings]
        result.append((kernel.name, dict(zip(names, views, strict=True)), workgroups))
        dispatch(kernel, views, workgroups, parameters)

    with monkeypatch.context() as patch:
        patch.setattr(device, "dispatch", note)
        yield result


@pytest.mark.parametrize(("optimizer", "whole"), [("SparseAdam", 3), ("Adagrad", 2), ("SGD", 1)])
def test_a_step_moves_bytes_for_its_entries_and_not_for_the_parameter(device, monkeypatch, optimizer, whole):
    length = 32

    def cost(rows, count):
        param = ow.Parameter(ow.ones((rows, length), device=device))
        mine = getattr(ow.optim, optimizer)([param])
        pair = entries(np.random.default_rng(0), count, (rows, length))
        grad = ow.SparseRows(*pair, param.shape, device=device)
        with observed(device, monkeypatch) as result:
            mine.step(grads=[grad])
        moved = lanes = 0
        bound_whole = []
        for name, views, workgroups in result:
            if name.endswith("update"):  # one invocation for an element of an entry: it finds its place in these
                bound_whole = [name for name, view in views.items() if view.nbytes == param.view.nbytes]
                views = {name: view for name, view in views.items() if name not in bound_whole}
            moved += sum(view.nbytes for view in views.values())
            lanes += workgroups
        assert len(bound_whole) == whole
        assert param._home.arena._grads is None  # nobody asked for a dense one
        assert mine.step(grads=[grad]) is None
        return moved, lanes, len(result)

    few, many = cost(3000, 1000), cost(300_000, 1000)
    assert few == many
    assert few[2] == 5
    moved, lanes, dispatches = cost(3000, 4000)
    assert dispatches == 6
    assert moved < 4.5 * few[0]  # 4.1 times: merging reads and writes rows and positions once more
    assert lanes < 4.5 * few[1]
    assert moved < 4000 * (4 * length * 6 + 60)  # of each value: read, sum written, joined (read and written), read


def test_rows_without_an_entry_keep_their_bits(device):
    rng = np.random.default_rng(0)
    before = rng.standard_normal((500, 7)).astype(np.float32)
    before[::5] = np.nan
    param = ow.Parameter(before, device=device)
    optimizer = ow.optim.SparseAdam([param])
    optimizer.step(grads=[ow.SparseRows([3, 499, 3, -1], np.ones((4, 7)), param.shape)])
    after, state = param.numpy(), optimizer.state_dict()["state"][0]
    touched = [3, 499]
    rest = np.delete(np.arange(500), touched)
    assert np.array_equal(after[rest].view(np.uint32), before[rest].view(np.uint32))
    assert (after[touched] < before[touched]).all()
    for name in ("exp_avg", "exp_avg_sq"):
        assert not state[name][rest].any()
        assert state[name][touched].all()


def test_the_rest_of_a_tensors_last_block_stays_zero(device):
    param = ow.Parameter(np.ones((43, 6), np.float32), device=device)
    optimizer = ow.optim.SparseAdam([param])
    optimizer.step(grads=[ow.SparseRows(np.arange(43), np.ones((43, 6)), param.shape)])
    shard = optimizer._layout.shards[0]
    for buffer in (shard.arena.params, *shard.state.values()):
        assert not np.frombuffer(device.read(View.whole(buffer)), np.float32)[258:].any()


def test_a_recorded_step_serves_for_other_rows_and_fewer_of_them(device, torch):
    from optimizer_references import sparse

    rng = np.random.default_rng(0)
    start = rng.standard_normal((30, 4)).astype(np.float32)
    param = ow.Parameter(start, device=device)
    optimizer = ow.optim.SparseAdam([param], lr=0.1)

    def train_step(rows, values):
        optimizer.step(grads=[ow.SparseRows(rows, values, param.shape)])

    step = ow.compile(train_step, device=device)
    inputs = [entries(rng, 100, (30, 4)) for _ in range(5)]
    for number, (rows, _) in enumerate(inputs):
        rows[number * 25 :] = -1
    step(*inputs[0])
    before = device.stats.copy()
    for pair in inputs[1:]:
        step(*pair)
    cost = device.stats - before
    (want,), _ = sparse.run([start], [[pair] for pair in inputs], name="SparseAdam", lr=0.1)
    assert relative_error(param.numpy(), want) <= 5e-6
    assert (cost.dispatches, cost.replays, cost.bytes_down) == (5 * 4, 4, 0)
    assert (cost.bind_groups, cost.pipelines, cost.copies) == (0, 0, 0)


def test_a_parameter_larger_than_a_binding_is_updated_in_parts(open_device, monkeypatch):
    device = open_device("vulkan")
    part = 64 * 256 * 4
    rng = np.random.default_rng(0)
    start = rng.standard_normal((2000, 21)).astype(np.float32)
    pair = entries(rng, 300, start.shape)
    param = ow.Parameter(start, device=device)
    optimizer = ow.optim.SGD([param], lr=1.0)
    monkeypatch.setattr(device, "capabilities", replace(device.capabilities, max_binding_bytes=part))
    grad = ow.SparseRows(*pair, param.shape, device=device)
    with observed(device, monkeypatch) as actual:
        optimizer.step(grads=[grad])
    updates = [views for name, views, _ in actual if name == "sgd update"]
    assert [update["params"].nbytes for update in updates] == [part, part, 4 * start.size - 2 * part]
    want = start.astype(np.float64)
    np.subtract.at(want, pair[0][pair[0] >= 0], pair[1][pair[0] >= 0])
    assert relative_error(param.numpy(), want) <= 1e-6
