"""Gradients of some rows: against torch's sparse ones in float64, what a step over them costs, and what is refused."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from optimizer_cases import SPARSE_CASES
from optimizer_cases.sparse_cases import TABLES
from optimizer_problems import relative_error

import optirs_web as ow
from optirs_web.errors import NonFiniteError, ShapeError, UnsupportedError
from optirs_web.interop.torch import to_torch
from optirs_web.runtime.buffer import View

STEPS = 100
ROWS_ARE_TOUCHED = [1, 0, 100, 1, 0, 3]
"""Entries of a step, where 1 is one row, 100 are all rows several times, and 0 is a gradient without entries."""


def entries(rng, count, shape):
    """Rows, often named several times, some of them -1, and values."""
    rows = rng.integers(-1, shape[0], count).astype(np.int32)
    return rows, rng.standard_normal((count, *shape[1:])).astype(np.float32)


def make_problem(shapes=TABLES, steps=STEPS):
    """Parameters, and for each step a pair for each of them; the last one sometimes has none."""
    rng = np.random.default_rng(0)
    params = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    grads = [
        [
            None
            if number == len(shapes) - 1 and step % 7 == 3
            else entries(rng, ROWS_ARE_TOUCHED[(step + number) % len(ROWS_ARE_TOUCHED)], shape)
            for number, shape in enumerate(shapes)
        ]
        for step in range(steps)
    ]
    return params, grads


@pytest.fixture(scope="module")
def reference(requires):
    """`reference(case)`: the problem and what torch makes of it, computed once for all devices."""
    requires("torch")
    known = {}

    def find(case):
        if case.name not in known:
            from optimizer_references import sparse

            params, grads = make_problem(case.shapes)
            known[case.name] = params, grads, *sparse.run(params, grads, name=case.optimizer, **case.options)
        return known[case.name]

    return find


@pytest.mark.parametrize("case", SPARSE_CASES, ids=[case.name for case in SPARSE_CASES])
def test_follows_its_source(case, numerics, reference, note_error):
    params, grads, want, want_state = reference(case)
    ours, state = numerics("sparse_steps", case.name, params, grads)
    for index in range(len(params)):
        assert relative_error(ours[index], want[index]) <= case.tolerance
        its_state = state.get(str(index), {})
        assert set(its_state) == set(want_state[index])
        for name, value in its_state.items():
            assert relative_error(value, want_state[index][name]) <= case.state_tolerance
    note_error(case, max(relative_error(one, other) for one, other in zip(ours, want, strict=True)))


@pytest.mark.parametrize(
    ("count", "shape"),
    [
        (1, (3, 2)),
        (5, (3,)),
        (64, (10, 3)),
        (65, (10, 3)),
        (1000, (1, 5)),
        (2048, (100, 4)),
        (2049, (100, 4)),
        (5000, (3, 2)),
        (9000, (70_000, 3, 2)),
    ],
)
def test_entries_of_a_row_are_added_up_to_the_same_bits_at_every_run(numerics, count, shape):
    rng = np.random.default_rng(count)
    rows, values = entries(rng, count, shape)
    # On the device nobody looks at the numbers: those that are no row are left out.
    rows[:: max(3, count // 7)] = -1
    rows[1 :: max(5, count // 11)] = rng.choice([shape[0], -7, 2**31 - 1, -(2**31)])
    values[(rows < 0) | (rows >= shape[0])] = np.nan
    want = np.zeros(shape)
    kept = (rows >= 0) & (rows < shape[0])
    np.add.at(want, rows[kept], values[kept].astype(np.float64))
    dense, again, table, others = numerics("sparse_sums", rows, values, shape)
    assert relative_error(dense, want) <= 1e-6
    assert np.array_equal(dense, again)
    assert np.array_equal(table, np.float32(1) - np.asarray(dense))
    assert others == [1.0, 1.0]


@pytest.mark.parametrize(
    "case", [case for case in SPARSE_CASES if "momentum" not in case.options], ids=lambda one: one.name
)
def test_continues_a_torch_run_and_torch_continues_ours(case, device, requires):
    requires("torch")
    from optimizer_references import sparse

    params, grads = make_problem(case.shapes, 20)
    theirs, torch_optimizer = sparse.make(case.optimizer, params, **case.options)
    sparse.steps(theirs, torch_optimizer, grads[:5])

    ours = [ow.Parameter(one.detach().numpy().astype(np.float32), device=device) for one in theirs]
    optimizer = getattr(ow.optim, case.optimizer)(ours, **case.options)
    optimizer.load_state_dict(torch_optimizer.state_dict())
    for step_grads in grads[5:15]:
        optimizer.step(
            grads=[pair and ow.SparseRows(*pair, one.shape) for pair, one in zip(step_grads, ours, strict=True)]
        )

    again, torch_again = sparse.make(case.optimizer, [one.numpy() for one in ours], **case.options)
    torch_again.load_state_dict(to_torch(optimizer.state_dict()))
    sparse.steps(again, torch_again, grads[15:])

    sparse.steps(theirs, torch_optimizer, grads[5:])
    for got, want in zip(again, theirs, strict=True):
        assert relative_error(got.detach().numpy(), want.detach().numpy()) <= case.tolerance


@pytest.mark.parametrize("optimizer", ["SGD", "Adagrad"])
def test_dense_gradients_and_rows_in_one_step_follow_torch(device, requires, optimizer):
    requires("torch")
    from optimizer_references import sparse

    rng = np.random.default_rng(0)
    params = [rng.standard_normal(shape).astype(np.float32) for shape in ((6, 3), (5,), (2, 2))]
    grads = []
    for step in range(12):
        dense = [rng.standard_normal(one.shape).astype(np.float32) for one in params]
        grads.append(
            [entries(rng, step % 5, (6, 3)) if step % 3 else dense[0], dense[1], None if step % 4 else dense[2]]
        )
    (theirs, _) = sparse.run(params, grads, name=optimizer, lr=0.1)
    ours = [ow.Parameter(one, device=device) for one in params]
    mine = getattr(ow.optim, optimizer)(ours, lr=0.1)
    for first, *rest in grads:
        mine.step(grads=[ow.SparseRows(*first, (6, 3)) if isinstance(first, tuple) else first, *rest])
    for got, want in zip(ours, theirs, strict=True):
        assert relative_error(got.numpy(), want) <= 5e-6


def test_a_row_first_touched_late_begins_with_the_initial_value_after_loading_too(device):
    def touch(optimizer, row):
        optimizer.step(grads=[ow.SparseRows([row], [[2.0]], (3, 1))])
        return optimizer.state_dict()["state"][0]["sum"].ravel().tolist()

    param = ow.Parameter(np.ones((3, 1), np.float32), device=device)
    optimizer = ow.optim.Adagrad([param], initial_accumulator_value=0.5)
    empty = optimizer.state_dict()
    assert touch(optimizer, 0) == [4.5, 0.5, 0.5]
    assert touch(optimizer, 1) == [4.5, 4.5, 0.5]
    optimizer.add_param_group({"params": [ow.Parameter([1.0], device=device)]})
    optimizer.param_groups[0]["maximize"] = True  # another layout
    optimizer.step(grads=[ow.SparseRows([2], [[2.0]], (3, 1)), None])
    assert optimizer.state_dict()["state"][0]["sum"].ravel().tolist() == [4.5, 4.5, 4.5]
    fresh = ow.optim.Adagrad([param], initial_accumulator_value=0.5)
    touch(fresh, 2)
    fresh.load_state_dict(empty)
    touch(fresh, 0)
    assert touch(fresh, 1) == [4.5, 4.5, 0.5]


# Cost.


@contextmanager
def observed(device, monkeypatch):
    """A list of (kernel's name, views by name of their binding, workgroups) of each dispatch."""
    found = []
    dispatch = device.dispatch

    def note(kernel, views, workgroups, parameters=()):
        names = [one.name for one in kernel.bindings]
        found.append((kernel.name, dict(zip(names, views, strict=True)), workgroups))
        dispatch(kernel, views, workgroups, parameters)

    with monkeypatch.context() as patch:
        patch.setattr(device, "dispatch", note)
        yield found


@pytest.mark.parametrize(("optimizer", "whole"), [("SparseAdam", 3), ("Adagrad", 2), ("SGD", 1)])
def test_a_step_moves_bytes_for_its_entries_and_not_for_the_parameter(device, monkeypatch, optimizer, whole):
    length = 32

    def cost(rows, count):
        param = ow.Parameter(ow.ones((rows, length), device=device))
        mine = getattr(ow.optim, optimizer)([param])
        pair = entries(np.random.default_rng(0), count, (rows, length))
        grad = ow.SparseRows(*pair, param.shape, device=device)
        with observed(device, monkeypatch) as found:
            mine.step(grads=[grad])
        moved = lanes = 0
        bound_whole = []
        for name, views, workgroups in found:
            if name.endswith("update"):  # one invocation for an element of an entry: it finds its place in these
                bound_whole = [one for one, view in views.items() if view.nbytes == param.view.nbytes]
                views = {one: view for one, view in views.items() if one not in bound_whole}
            moved += sum(view.nbytes for view in views.values())
            lanes += workgroups
        assert len(bound_whole) == whole
        assert param._home.arena._grads is None  # nobody asked for a dense one
        assert mine.step(grads=[grad]) is None
        return moved, lanes, len(found)

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


def test_a_recorded_step_serves_for_other_rows_and_fewer_of_them(device, requires):
    requires("torch")
    from optimizer_references import sparse

    rng = np.random.default_rng(0)
    start = rng.standard_normal((30, 4)).astype(np.float32)
    param = ow.Parameter(start, device=device)
    optimizer = ow.optim.SparseAdam([param], lr=0.1)

    def train_step(rows, values):
        optimizer.step(grads=[ow.SparseRows(rows, values, param.shape)])

    step = ow.compile(train_step, device=device)
    given = [entries(rng, 100, (30, 4)) for _ in range(5)]
    for number, (rows, _) in enumerate(given):
        rows[number * 25 :] = -1
    step(*given[0])
    before = device.stats.copy()
    for pair in given[1:]:
        step(*pair)
    cost = device.stats - before
    (want,), _ = sparse.run([start], [[pair] for pair in given], name="SparseAdam", lr=0.1)
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
    with observed(device, monkeypatch) as found:
        optimizer.step(grads=[grad])
    updates = [views for name, views, _ in found if name == "sgd update"]
    assert [one["params"].nbytes for one in updates] == [part, part, 4 * start.size - 2 * part]
    want = start.astype(np.float64)
    np.subtract.at(want, pair[0][pair[0] >= 0], pair[1][pair[0] >= 0])
    assert relative_error(param.numpy(), want) <= 1e-6


def test_lowers_a_quadratic_of_which_each_step_sees_some_rows(device):
    rng = np.random.default_rng(0)
    target = rng.standard_normal((40, 8)).astype(np.float32)
    param = ow.Parameter(np.zeros_like(target), device=device)
    optimizer = ow.optim.SparseAdam([param], lr=0.05)
    values = np.zeros_like(target)
    for _ in range(300):
        rows = rng.integers(0, 40, 16).astype(np.int32)
        values = param.numpy() - target
        optimizer.step(grads=[ow.SparseRows(rows, values[rows], param.shape)])
    assert (values**2).sum() < (target**2).sum() / 1000


# Steps with gradients that are not finite.


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_skip_nonfinite_leaves_everything_as_it_was(device, bad):
    param = ow.Parameter(np.ones((4, 2), np.float32), device=device)
    optimizer = ow.optim.SparseAdam([param], lr=0.1, skip_nonfinite=True)
    good = ow.SparseRows([0, 2], np.ones((2, 2)), (4, 2))
    optimizer.step(grads=[good])
    before = param.tolist(), optimizer.state_dict()["state"]
    optimizer.step(grads=[ow.SparseRows([1, 3, 3], [[1.0, 1.0], [1.0, bad], [1.0, 1.0]], (4, 2))])
    np.testing.assert_equal((param.tolist(), optimizer.state_dict()["state"]), before)
    assert optimizer.skipped_steps == 1
    with pytest.raises(NonFiniteError, match=r"1 step\(s\) were skipped"):
        optimizer.check_finite()
    # What names no row is not looked at.
    unused = ow.tensor(np.array([0, -1, 4], np.int32), device=device)
    optimizer.step(
        grads=[ow.SparseRows(unused, ow.tensor([[1.0, 1.0], [bad, bad], [bad, bad]], device=device), (4, 2))]
    )
    assert optimizer.state_dict()["state"][0]["step"] == 2


@pytest.mark.parametrize("bad", ["rows", "dense"])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_step_with_both_kinds_is_left_out_as_a_whole(device, bad, is_compiled):
    table, other = ow.Parameter(np.ones((3, 1), np.float32), device=device), ow.Parameter([1.0], device=device)
    optimizer = ow.optim.Adagrad([table, other], lr=0.5, skip_nonfinite=True)

    def train_step(rows, values, dense):
        optimizer.step(grads=[ow.SparseRows(rows, values, table.shape), dense])

    step = ow.compile(train_step, device=device) if is_compiled else train_step
    factors = [1.0, np.nan, 1.0]
    for factor in factors:
        values = np.full((2, 1), factor if bad == "rows" else 1.0, np.float32)
        dense = np.full(1, factor if bad == "dense" else 1.0, np.float32)
        rows = ow.tensor(np.array([0, 2], np.int32), device=device)
        step(rows, ow.tensor(values, device=device), ow.tensor(dense, device=device))
    moved = 0.5 + 0.5 / np.sqrt(2)
    assert table.numpy().ravel() == pytest.approx([1 - moved, 1.0, 1 - moved])
    assert other.item() == pytest.approx(1 - moved)
    assert optimizer.skipped_steps == 1
    assert [one["step"] for one in optimizer.state_dict()["state"].values()] == [2, 2]


# As a gradient.


def test_a_parameter_has_rows_as_its_gradient(device):
    param = ow.Parameter(np.ones((3, 2), np.float32), device=device)
    param.grad = ow.SparseRows([2], [[4.0, 8.0]], (3, 2), device=device)
    optimizer = ow.optim.SGD([param], lr=0.5)
    optimizer.step()
    assert param.tolist() == [[1.0, 1.0], [1.0, 1.0], [-1.0, -3.0]]
    assert repr(param.grad) == f"<SparseRows 1 of (3, 2) on {device.name}>"
    (param * 3.0).sum().backward()  # is added to it
    assert param.grad.tolist() == [[3.0, 3.0], [3.0, 3.0], [7.0, 11.0]]
    param.grad = ow.SparseRows([2], [[4.0, 8.0]], (3, 2), device=device)
    optimizer.zero_grad(set_to_none=False)
    assert not param.grad.to_dense().numpy().any()
    optimizer.step()
    assert param.tolist() == [[1.0, 1.0], [1.0, 1.0], [-1.0, -3.0]]
    optimizer.zero_grad()
    assert param.grad is None


def test_a_step_without_entries_is_counted_as_in_torch(device):
    param = ow.Parameter(np.ones((3, 2), np.float32), device=device)
    optimizer = ow.optim.SparseAdam([param])
    optimizer.step(grads=[ow.SparseRows([], [], (3, 2))])
    entry = optimizer.state_dict()["state"][0]
    assert entry["step"] == 1
    assert not entry["exp_avg"].any()
    assert param.tolist() == [[1.0, 1.0]] * 3


def test_rows_of_another_device_are_copied(open_device):
    param = ow.Parameter([[1.0], [1.0]], device=open_device("vulkan"))
    grad = ow.SparseRows([1], [[1.0]], (2, 1), device="cpu")
    ow.optim.SGD([param], lr=1.0).step(grads=[grad])
    assert param.tolist() == [[1.0], [0.0]]


def test_the_rest_of_a_tensors_last_block_stays_zero(device):
    param = ow.Parameter(np.ones((43, 6), np.float32), device=device)
    optimizer = ow.optim.SparseAdam([param])
    optimizer.step(grads=[ow.SparseRows(np.arange(43), np.ones((43, 6)), param.shape)])
    shard = optimizer._layout._shards[0]
    for buffer in (shard.arena.params, *shard.state.values()):
        assert not np.frombuffer(device.read(View.whole(buffer)), np.float32)[258:].any()


# What is refused.


@pytest.mark.parametrize(
    ("optimizer", "options", "message"),
    [
        ("Adam", {}, "Adam does not support sparse gradients, please consider SparseAdam instead"),
        ("RMSprop", {}, "RMSprop does not support sparse gradients"),
        ("Adagrad", {"weight_decay": 0.1}, "weight_decay option is not compatible with sparse gradients"),
        ("SGD", {"weight_decay": 0.1}, "weight_decay option is not compatible with sparse gradients"),
        ("SparseAdam", {"transforms": [ow.optim.transforms.add_noise(1.0)]}, "add_noise changes all rows"),
        ("SGD", {"transforms": [ow.optim.transforms.add_decayed_weights(0.1)]}, "add_decayed_weights changes all rows"),
        ("Adagrad", {"transforms": [ow.optim.transforms.accumulate(2)]}, "accumulate keeps whole gradients"),
    ],
)
def test_rows_are_refused_where_torch_refuses_them_in_its_words(device, optimizer, options, message):
    param = ow.Parameter(np.ones((3, 2), np.float32), device=device)
    mine = getattr(ow.optim, optimizer)([param], **options)
    with pytest.raises(UnsupportedError, match=message):
        mine.step(grads=[ow.SparseRows([0], [[1.0, 1.0]], (3, 2))])
    assert param.tolist() == [[1.0, 1.0]] * 3


def test_sparse_adam_takes_no_dense_gradient(device):
    param = ow.Parameter([[1.0]], device=device)
    with pytest.raises(
        UnsupportedError, match="SparseAdam does not support dense gradients, please consider Adam instead"
    ):
        ow.optim.SparseAdam([param]).step(grads=[[[1.0]]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "Invalid learning rate: 0.0"),
        ({"eps": 0.0}, "Invalid epsilon value: 0.0"),
        ({"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
        ({"betas": (0.9, -0.1)}, "Invalid beta parameter at index 1: -0.1"),
    ],
)
def test_options_of_sparse_adam_out_of_range_are_refused_in_torchs_words(options, message):
    with pytest.raises(ValueError, match=message):
        ow.optim.SparseAdam([ow.Parameter([1.0], device="cpu")], **options)


@pytest.mark.parametrize(
    ("rows", "values", "shape", "error", "message"),
    [
        ([3], [[1.0, 1.0]], (3, 2), ShapeError, "names row 3 of a parameter that has 3"),
        ([0, -2], [[1.0, 1.0]] * 2, (3, 2), ShapeError, "names row -2 of a parameter that has 3; -1 is no row"),
        ([0], [[1.0, 1.0, 1.0]], (3, 2), ShapeError, r"have the shape \(1, 2\), not \(1, 3\)"),
        ([0, 1], [[1.0, 1.0]], (3, 2), ShapeError, r"have the shape \(2, 2\), not \(1, 2\)"),
        ([[0]], [[1.0, 1.0]], (3, 2), ShapeError, r"have the shape \(n,\), not \(1, 1\)"),
        ([0], [1.0], (), ShapeError, "a tensor without axes has no rows"),
        (np.zeros(1, np.float32), [[1.0, 1.0]], (3, 2), UnsupportedError, "int32, not float32"),
        (ow.tensor([0.0], device="cpu"), [[1.0, 1.0]], (3, 2), UnsupportedError, "int32, not float32"),
        ([0], ow.tensor([[1, 1]], device="cpu"), (3, 2), UnsupportedError, "float32, not int32"),
    ],
)
def test_what_is_no_gradient_of_rows_is_refused(rows, values, shape, error, message):
    with pytest.raises(error, match=message):
        ow.SparseRows(rows, values, shape, device="cpu")


def test_rows_of_a_parameter_of_another_shape_are_refused(device):
    param = ow.Parameter(np.ones((3, 2), np.float32), device=device)
    with pytest.raises(ShapeError, match=r"shape \(4, 2\), its parameter \(3, 2\)"):
        ow.optim.SGD([param]).step(grads=[ow.SparseRows([0], [[1.0, 1.0]], (4, 2))])
