"""APOLLO: what is projected and what is not, the norm-growth limiter, projections that are not stored."""

from dataclasses import replace

import numpy as np
import pytest
from optimizer_references.apollo import apollo
from test_matrix_optimizers import cost_of_a_replayed_step, make_params
from test_optimizers import assert_close, make_problem

import optirs_web as ow
from optirs_web.errors import CheckpointError


@pytest.mark.parametrize("count", [1, 20])
def test_dispatches_do_not_depend_on_the_number_of_matrices_of_a_shape(device, count):
    params = make_params([(6, 9), (9,)] * count, device)
    cost = cost_of_a_replayed_step(ow.optim.APOLLO(params, rank=3), params, device)
    assert (cost.dispatches, cost.submits, cost.copies) == (2 + 4 + 1 + 3, 1, 0)
    assert (cost.bytes_up, cost.bytes_down) == (0, 0)


def test_what_is_not_projected_takes_the_steps_of_adamw(device):
    shapes = [(7,), (3, 2, 4), (4, 9), (9, 4), ()]
    params, grads = make_problem(shapes, 5)
    ours, others = ([ow.Parameter(param, device=device) for param in params] for _ in range(2))
    optimizer = ow.optim.APOLLO(ours, lr=0.01, weight_decay=0.1, rank=4, scale=3.0)
    adamw = ow.optim.AdamW(others, lr=0.01, weight_decay=0.1)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
        adamw.step(grads=step_grads)
    for mine, other in zip(ours, others, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=0, atol=1e-6)
    state, want = (optimizer.state_dict()["state"] for optimizer in (optimizer, adamw))
    for number, shape in enumerate(shapes):
        for name in ("exp_avg", "exp_avg_sq"):
            assert state[number][name].shape == shape
            np.testing.assert_allclose(state[number][name], want[number][name], rtol=1e-6)


@pytest.mark.parametrize(("shape", "low"), [((20, 50), (1, 50)), ((50, 20), (50, 1))])
def test_the_state_of_the_mini_variant_is_two_numbers_per_channel(device, shape, low):
    optimizer = ow.optim.APOLLO(make_params([shape], device), rank=1, scale_type="tensor")
    optimizer.step(grads=[np.ones(shape, np.float32)])
    state = optimizer.state_dict()["state"][0]
    assert {name: array.shape for name, array in state.items() if array.shape} == {"exp_avg": low, "exp_avg_sq": low}
    assert set(state) == {"step", "norm", "exp_avg", "exp_avg_sq"}


def steps_taken(device, grads, **options):
    """How far a matrix goes in each step, divided by the learning rate."""
    param = ow.Parameter(np.zeros(grads[0].shape, np.float32), device=device)
    optimizer = ow.optim.APOLLO([param], lr=0.5, **options)
    lengths, before = [], param.numpy()
    for grad in grads:
        optimizer.step(grads=[grad])
        lengths.append(np.linalg.norm(param.numpy() - before) / 0.5)
        before = param.numpy()
    return np.array(lengths), optimizer.state_dict()["state"][0]["norm"]


def test_steps_grow_no_faster_than_gamma(device):
    """Those without Adam's corrections, which the authors' code applies to what is limited."""
    rng = np.random.default_rng(0)
    grads = [rng.standard_normal((8, 12)).astype(np.float32) * size for size in (1e-3, 1.0, 1.0, 10.0, 10.0, 1e-3)]
    corrections = (1 - 0.5 ** np.arange(1, 7)) ** -0.5
    free, _ = steps_taken(device, grads, rank=4, gamma=0.0, betas=(0.5, 0.5))
    lengths, norm = steps_taken(device, grads, rank=4, scale=2.0, betas=(0.5, 0.5))
    free, lengths = free / corrections, lengths / corrections
    assert (free[1:] / free[:-1]).max() > 1.05
    ratios = lengths[1:] / lengths[:-1]
    assert ratios.max() == pytest.approx(1.01, rel=1e-5)
    assert lengths[0] == pytest.approx(2 * free[0], rel=1e-5)  # the first is not limited
    assert norm == pytest.approx(lengths[-1] / 2, rel=1e-5)  # without the scale


def test_a_step_without_a_gradient_does_not_limit_the_next(device):
    grad = np.random.default_rng(0).standard_normal((8, 12)).astype(np.float32)
    lengths, _ = steps_taken(device, [0 * grad, grad, grad], rank=4)
    assert lengths[0] == 0.0
    assert lengths[1] > 1.0


@pytest.mark.parametrize("scale_type", ["channel", "tensor"])
def test_channels_without_a_gradient_stay(device, scale_type):
    grads = make_problem([(6, 40)], 3)[1]
    param = ow.Parameter(np.ones((6, 40), np.float32), device=device)
    optimizer = ow.optim.APOLLO([param], lr=0.1, rank=2, scale_type=scale_type)
    for (grad,) in grads:
        grad[:, 7] = 0.0
        optimizer.step(grads=[grad])
    values = param.numpy()
    assert (values[:, 7] == 1.0).all()
    assert np.isfinite(values).all()
    assert (np.delete(values, 7, axis=1) != 1.0).any(axis=0).all()


def test_projections_are_renewed_and_differ_by_seed_and_tensor(device):
    """With the same gradient in each step, and moments that forget at once, a factor is that of the projection."""
    grad = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
    params = [ow.Parameter(np.zeros((5, 9), np.float32), device=device) for _ in range(2)]
    optimizer = ow.optim.APOLLO(params, lr=1.0, betas=(0.0, 0.0), rank=2, update_proj_gap=3, gamma=0.0)
    steps = []
    for _ in range(6):
        before = [param.numpy() for param in params]
        optimizer.step(grads=[grad, grad])
        steps.append([param.numpy() - start for param, start in zip(params, before, strict=True)])
    for first, second, is_same in ((0, 2, True), (2, 3, False), (3, 5, True)):
        assert np.allclose(steps[first][0], steps[second][0], rtol=0, atol=1e-5) == is_same
    assert not np.allclose(steps[0][0], steps[0][1], rtol=0, atol=1e-3)
    other = ow.Parameter(np.zeros((5, 9), np.float32), device=device)
    ow.optim.APOLLO([other], lr=1.0, betas=(0.0, 0.0), rank=2, gamma=0.0, seed=1).step(grads=[grad])
    assert not np.allclose(other.numpy(), steps[0][0], rtol=0, atol=1e-3)


def test_factors_are_those_of_adam_but_for_the_root_of_the_rank(device):
    """The paper's claim (section 4.1): a norm is kept by a projection of high rank, and that of the steps shrinks."""
    grad = np.random.default_rng(0).standard_normal((400, 600)).astype(np.float32)
    param = ow.Parameter(np.zeros(grad.shape, np.float32), device=device)
    ow.optim.APOLLO([param], lr=1.0, rank=100, scale=2.0).step(grads=[grad])
    factors = -param.numpy()[0] / grad[0]
    full = np.sqrt(400) / np.linalg.norm(grad, axis=0)  # Adam's first step has the length sqrt(rows)
    assert np.abs(factors / full - 1).max() < 0.3
    assert np.mean(factors / full) == pytest.approx(1, abs=0.02)


def test_groups_of_their_own_options(device):
    params, grads = make_problem([(6, 9), (6, 9), (6, 9)], 4)
    ours = [ow.Parameter(param, device=device) for param in params]
    others = {"scale_type": "tensor", "seed": 3}
    optimizer = ow.optim.APOLLO([{"params": ours[:1]}, {"params": ours[1:], **others}], lr=0.1, rank=2)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
    plain, _ = apollo(params, grads, lr=0.1, rank=2)
    whole, _ = apollo(params, grads, lr=0.1, rank=2, **others)
    for mine, want in zip(ours, [plain[0], *whole[1:]], strict=True):
        assert_close(mine.numpy(), want, 5e-6)


def test_a_state_dict_goes_on_where_it_was_taken(device):
    params, grads = make_problem([(4, 6), (5,), (6, 4), (3, 2, 2)], 9)
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = ow.optim.APOLLO(ours, lr=0.05, rank=2, update_proj_gap=3)
    for step_grads in grads[:5]:
        optimizer.step(grads=step_grads)
    state = optimizer.state_dict()
    lying = {name: (array + 0.0).numpy() for name, array in optimizer.state[ours[0]].items() if array.shape}
    assert set(lying) == {"exp_avg", "exp_avg_sq"}
    for name, tensor in lying.items():
        np.testing.assert_array_equal(tensor, state["state"][0][name])
    others = [ow.Parameter(mine.numpy(), device=device) for mine in ours]
    again = ow.optim.APOLLO(others, rank=2)
    again.load_state_dict(state)
    for step_grads in grads[5:]:
        optimizer.step(grads=step_grads)
        again.step(grads=step_grads)
    for tensor, other in zip(ours, others, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), other.numpy())
    wrong = {0: {**state["state"][0], "exp_avg": np.zeros((4, 6), np.float32)}}
    with pytest.raises(CheckpointError, match=r"of parameter 0 has the shape \(4, 6\)"):
        again.load_state_dict({**state, "state": wrong})


def test_state_is_kept_when_a_group_is_added_and_steps_are_skipped(device):
    params, grads = make_problem([(4, 6), (6, 5)], 6)
    results = []
    for is_disturbed in (False, True):
        first, second = (ow.Parameter(param, device=device) for param in params)
        optimizer = ow.optim.APOLLO([first], lr=0.05, rank=2, update_proj_gap=2, skip_nonfinite=True)
        for number, (grad, other) in enumerate(grads):
            if number == 3 and is_disturbed:
                optimizer.add_param_group({"params": [second]})
            extra = [other] if len(optimizer.param_groups) == 2 else []
            if is_disturbed:
                optimizer.step(grads=[np.where(grad == grad[0, 0], np.nan, grad), *extra])
            optimizer.step(grads=[grad, *extra])
        results.append(first.numpy())
    np.testing.assert_array_equal(*results)


def test_more_matrices_than_a_kernel_sees_at_once(device, monkeypatch):
    shapes = [(40, 60), (64, 64), (40, 60), (40, 60), (64, 64), (40, 60), (40, 60), (40, 60)]
    params, grads = make_problem(shapes, 3)
    results = []
    for limit in (device.capabilities.max_binding_bytes, 65536):
        monkeypatch.setattr(device, "capabilities", replace(device.capabilities, max_binding_bytes=limit))
        ours = [ow.Parameter(param, device=device) for param in params]
        optimizer = ow.optim.APOLLO(ours, lr=0.05, rank=16)
        for step_grads in grads:
            optimizer.step(grads=step_grads)
        results.append([mine.numpy() for mine in ours])
    for whole, in_parts in zip(*results, strict=True):
        np.testing.assert_allclose(whole, in_parts, rtol=0, atol=1e-6)


def test_there_is_one_rank():
    groups = [{"params": [ow.Parameter([[1.0]], device="cpu")], "rank": rank} for rank in (1, 2)]
    with pytest.raises(ValueError, match="APOLLO needs one rank for all groups, not 1, 2"):
        ow.optim.APOLLO(groups)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "Invalid rank value: 0"),
        ({"update_proj_gap": 0}, "Invalid update_proj_gap value: 0"),
        ({"scale": -1.0}, "Invalid scale value: -1.0"),
        ({"scale_type": "row"}, "Invalid scale_type value: row"),
        ({"gamma": float("nan")}, "Invalid gamma value: nan"),
        ({"seed": 2**32}, r"a seed must be an integer from 0 to 2\*\*32 - 1, not 4294967296"),
        ({"betas": (0.9, 1.0)}, "Invalid beta parameter at index 1: 1.0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ow.optim.APOLLO([ow.Parameter([[1.0]], device="cpu")], **options)
