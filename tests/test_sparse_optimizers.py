"""Steps with gradients of some rows: against torch's sparse ones in float64, and steps that are skipped."""

import numpy as np
import pytest
from optimizer_cases import SPARSE_CASES
from optimizer_problems import relative_error
from sparse_problems import entries, make_problem

import optirs_web as ow
from optirs_web.errors import NonFiniteError
from optirs_web.interop.torch import to_torch


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


@pytest.mark.needs("torch")
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
    note_error(case, max(relative_error(mine, other) for mine, other in zip(ours, want, strict=True)))


@pytest.mark.parametrize(
    "case", [case for case in SPARSE_CASES if "momentum" not in case.options], ids=lambda one: one.name
)
def test_continues_a_torch_run_and_torch_continues_ours(case, device, torch):
    from optimizer_references import sparse

    params, grads = make_problem(case.shapes, 20)
    theirs, torch_optimizer = sparse.make(case.optimizer, params, **case.options)
    sparse.steps(theirs, torch_optimizer, grads[:5])

    ours = [ow.Parameter(one.detach().numpy().astype(np.float32), device=device) for one in theirs]
    optimizer = getattr(ow.optim, case.optimizer)(ours, **case.options)
    optimizer.load_state_dict(torch_optimizer.state_dict())
    for step_grads in grads[5:15]:
        optimizer.step(
            grads=[pair and ow.SparseRows(*pair, mine.shape) for pair, mine in zip(step_grads, ours, strict=True)]
        )

    again, torch_again = sparse.make(case.optimizer, [mine.numpy() for mine in ours], **case.options)
    torch_again.load_state_dict(to_torch(optimizer.state_dict()))
    sparse.steps(again, torch_again, grads[15:])

    sparse.steps(theirs, torch_optimizer, grads[5:])
    for got, want in zip(again, theirs, strict=True):
        assert relative_error(got.detach().numpy(), want.detach().numpy()) <= case.tolerance


@pytest.mark.parametrize("optimizer", ["SGD", "Adagrad"])
def test_dense_gradients_and_rows_in_one_step_follow_torch(device, torch, optimizer):
    from optimizer_references import sparse

    rng = np.random.default_rng(0)
    params = [rng.standard_normal(shape).astype(np.float32) for shape in ((6, 3), (5,), (2, 2))]
    grads = []
    for step in range(12):
        dense = [rng.standard_normal(param.shape).astype(np.float32) for param in params]
        grads.append(
            [entries(rng, step % 5, (6, 3)) if step % 3 else dense[0], dense[1], None if step % 4 else dense[2]]
        )
    (theirs, _) = sparse.run(params, grads, name=optimizer, lr=0.1)
    ours = [ow.Parameter(param, device=device) for param in params]
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


def test_a_step_without_entries_is_counted_as_in_torch(device):
    param = ow.Parameter(np.ones((3, 2), np.float32), device=device)
    optimizer = ow.optim.SparseAdam([param])
    optimizer.step(grads=[ow.SparseRows([], [], (3, 2))])
    entry = optimizer.state_dict()["state"][0]
    assert entry["step"] == 1
    assert not entry["exp_avg"].any()
    assert param.tolist() == [[1.0, 1.0]] * 3


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


# Gradients that are not finite.


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
    assert [entry["step"] for entry in optimizer.state_dict()["state"].values()] == [2, 2]
