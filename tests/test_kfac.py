"""K-FAC: natural gradients in closed form, statistics of all kinds, what is refused."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from optimizer_references.kfac import damped, kfac
from test_matrix_optimizers import cost_of_a_replayed_step
from test_optimizers import assert_close, make_problem

import optirs_web as ow
from optirs_web.datasets import load_digits
from optirs_web.errors import CheckpointError, NonFiniteError, ShapeError, UnsupportedError

NEWTON = {"lr": 1.0, "momentum": 0.0, "damping": 0.0, "kl_clip": None}
SHAPES = [(4, 6), (4,), (3, 4), (4, 6), (4,)]
LAYERS = [(6, 4), (4, 3), (6, 4)]


def draw_statistics(layers, batch=32, seed=0):
    rng = np.random.default_rng(seed)
    return [tuple(rng.standard_normal((batch, size)).astype(np.float32) for size in layer) for layer in layers]


@pytest.mark.parametrize("in_first", [False, True])
def test_one_step_solves_least_squares_with_the_exact_statistics(device, in_first):
    """The Fisher matrix of y ~ N(W a + b, I) is E[a aᵀ] with I, and with it the step is that of Newton."""
    rng = np.random.default_rng(0)
    a = (rng.standard_normal((60, 5)) * [1.5, 1.2, 1.0, 0.8, 0.6] + 0.2).astype(np.float32)
    targets = rng.standard_normal((60, 3)).astype(np.float32)
    joined = np.hstack([a, np.ones((60, 1))]).astype(np.float64)
    solution = np.linalg.lstsq(joined, targets, rcond=None)[0]
    w, b = rng.standard_normal((5, 3)).astype(np.float32), rng.standard_normal(3).astype(np.float32)
    residual = joined @ np.vstack([w, b]) - targets
    gradient = joined.T @ residual / 60
    params = [ow.Parameter(w if in_first else w.T.copy(), device=device), ow.Parameter(b, device=device)]
    g = np.sqrt(3.0) * np.tile(np.eye(3, dtype=np.float32), (20, 1))  # as noise of N(0, I) has it on average
    optimizer = ow.optim.KFAC(params, **NEWTON, in_first=in_first, statistics=lambda: [(a, g)])
    weight_gradient = gradient[:-1] if in_first else gradient[:-1].T
    optimizer.step(grads=[weight_gradient.astype(np.float32), gradient[-1].astype(np.float32)])
    actual = np.vstack([params[0].numpy() if in_first else params[0].numpy().T, params[1].numpy()])
    assert np.abs(actual - solution).max() <= 2e-5 * np.abs(np.vstack([w, b]) - solution).max()


def test_a_layer_is_stepped_by_the_inverse_of_its_fisher_matrix(device):
    """G ⊗ A, damped: the same as dense linear algebra over all its weights."""
    ((a, g),) = draw_statistics([(3, 2)])
    w, grad = np.ones((2, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    param = ow.Parameter(w, device=device)
    ow.optim.KFAC([param], **{**NEWTON, "damping": 0.1}).step(grads=[grad], statistics=[(a, g)])
    a, g = a.astype(np.float64), g.astype(np.float64)
    left, right = damped(a.T @ a / 32, g.T @ g / 32, 0.1)
    want = w.reshape(-1) - np.linalg.solve(np.kron(right, left), grad.reshape(-1))
    assert_close(param.numpy(), want.reshape(2, 3), 2e-6)


def test_changing_statistics_are_averaged_as_in_the_paper(device):
    params, grads = make_problem(SHAPES, 30)
    drawn = [draw_statistics(LAYERS, 32, number) for number in range(30)]
    options = {"lr": 0.1, "damping": 0.1, "stat_decay": 0.8, "kl_clip": 1e-2, "update_freq": 4}
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = ow.optim.KFAC(ours, **options)
    for step_grads, statistics in zip(grads, drawn, strict=True):
        optimizer.step(grads=step_grads, statistics=statistics)
    inputs = iter(drawn)
    want, want_state = kfac(params, grads, statistics=lambda: next(inputs), **options)
    state = optimizer.state_dict()["state"]
    for number, mine in enumerate(ours):
        assert_close(mine.numpy(), want[number], 5e-6)
        assert set(state[number]) == set(want_state[number])
        for name, value in want_state[number].items():
            assert_close(state[number][name], value, 1e-5)


def test_clipping_bounds_the_change_of_all_layers_together(device):
    params, grads = make_problem(SHAPES, 1)
    statistics = draw_statistics(LAYERS)
    changes = []
    for kl_clip in (None, 1e-4):
        ours = [ow.Parameter(param, device=device) for param in params]
        optimizer = ow.optim.KFAC(ours, lr=0.5, momentum=0.0, damping=0.1, kl_clip=kl_clip)
        optimizer.step(grads=grads[0], statistics=statistics)
        changes.append([mine.numpy().astype(np.float64) - start for mine, start in zip(ours, params, strict=True)])
    free, clipped = changes
    # Steps are -lr D, so that lr² D gradient is -lr (step gradient).
    change = -0.5 * sum(np.sum(step * grad) for step, grad in zip(free, grads[0], strict=True))
    for whole, part in zip(free, clipped, strict=True):
        np.testing.assert_allclose(part, whole * np.sqrt(1e-4 / change), rtol=0, atol=1e-5 * np.abs(whole).max())


@pytest.mark.parametrize(("condition", "tolerance"), [(1e1, 1e-6), (1e3, 2e-5), (1e5, 1e-3)])
@pytest.mark.parametrize("size", [5, 40])
def test_inverses_are_as_accurate_as_the_condition_allows(device, size, condition, tolerance):
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
    a = (np.geomspace(1.0, condition**-0.5, size)[:, None] * basis).astype(np.float32)
    param = ow.Parameter(np.zeros((1, size), np.float32), device=device)
    optimizer = ow.optim.KFAC([param], **NEWTON)
    optimizer.step(grads=[np.ones((1, size))], statistics=[(a, np.ones((size, 1), np.float32))])
    state = optimizer.state_dict()["state"][0]
    want = np.linalg.inv(damped(*(state[kind].astype(np.float64) for kind in "AG"), 0.0)[0])
    assert np.linalg.norm(state["A_inverse"] - want, 2) <= tolerance * np.linalg.norm(want, 2)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e8])
def test_statistics_of_low_rank_and_any_size_leave_steps_finite(device, scale):
    rng = np.random.default_rng(1)
    a = (rng.standard_normal((8, 3)) @ rng.standard_normal((3, 20)) * scale).astype(np.float32)
    a[:, 0] = 0.0  # a unit that is dead
    g = rng.standard_normal((8, 4)).astype(np.float32)
    params = [ow.Parameter(np.ones(shape, np.float32), device=device) for shape in ((4, 20), (4,))]
    optimizer = ow.optim.KFAC(params, statistics=lambda: [(a, g)], update_freq=1)
    for _ in range(3):
        optimizer.step(grads=[(g.T @ a / 8).astype(np.float32), g.mean(0)])
    values = [param.numpy() for param in params]
    assert all(np.isfinite(value).all() for value in values)
    assert (values[0][:, 0] == 1.0).all()
    assert scale > 1.0 or np.abs(values[1] - 1.0).max() > 1e-5  # beside large inputs, that of a bias is small


@pytest.mark.parametrize("zero", ["inputs", "gradients", "both"])
@pytest.mark.parametrize("damping", [0.0, 1e-3])
def test_statistics_of_zeros_leave_a_layer_where_it_is(device, zero, damping):
    ((a, g),) = draw_statistics([(6, 4)])
    a, g = (factor * (zero not in (name, "both")) for name, factor in (("inputs", a), ("gradients", g)))
    param = ow.Parameter(np.ones((4, 6), np.float32), device=device)
    optimizer = ow.optim.KFAC([param], damping=damping)
    for _ in range(2):
        optimizer.step(grads=[g.T @ a], statistics=[(a, g)])
    assert (param.numpy() == 1.0).all()
    assert all(np.isfinite(value).all() for value in optimizer.state_dict()["state"][0].values())


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_steps_whose_statistics_are_not_finite_or_too_large_are_skipped_if_asked(device, bad):
    """Squares of 1e30 are beyond float32, and so would be the factors."""
    params, grads = make_problem(SHAPES, 1)
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = ow.optim.KFAC(ours, skip_nonfinite=True, damping=0.1)
    good = draw_statistics(LAYERS)
    optimizer.step(grads=grads[0], statistics=good)
    before = [mine.tolist() for mine in ours], optimizer.state_dict()["state"]
    poisoned = copy.deepcopy(good)
    poisoned[1][1][5, 2] = bad
    optimizer.step(grads=grads[0], statistics=poisoned)
    optimizer.step(grads=[np.full(param.shape, bad * 1e300) for param in params], statistics=good)
    after = [mine.tolist() for mine in ours], optimizer.state_dict()["state"]
    assert before[0] == after[0]
    np.testing.assert_equal(before[1], after[1])
    with pytest.raises(NonFiniteError, match=r"2 step\(s\) were skipped"):
        optimizer.check_finite()
    optimizer.step(grads=grads[0], statistics=good)
    assert optimizer.state_dict()["state"][0]["step"] == 2


def test_statistics_are_good_up_to_where_their_squares_leave_float32(device):
    """A factor of 1e36 divides the gradient by that much; the sum of 400 such squares is too large."""
    param = ow.Parameter([[0.0]], device=device)
    optimizer = ow.optim.KFAC([param], **NEWTON, skip_nonfinite=True)
    optimizer.step(grads=[[[1e30]]], statistics=[([[1e18]], [[1.0]])])
    assert_close(param.numpy(), np.array([[-1e-6]]), 1e-5)
    optimizer.step(grads=[[[1e30]]], statistics=[([[1e18]] * 400, [[1.0]] * 400)])
    assert optimizer.skipped_steps == 1


def test_without_skipping_they_show_in_check_finite(device):
    param = ow.Parameter([[1.0, 1.0]], device=device)
    optimizer = ow.optim.KFAC([param])
    optimizer.step(grads=[[[1.0, 1.0]]], statistics=[([[float("nan"), 1.0]], [[1.0]])])
    with pytest.raises(NonFiniteError, match="a parameter is NaN or infinite"):
        optimizer.check_finite()


ONE = [([[1.0, 2.0]], [[1.0, 1.0, 1.0]])]


@pytest.mark.parametrize(
    ("statistics", "error", "message"),
    [
        (None, ValueError, "KFAC needs statistics"),
        ([], ShapeError, r"for each of 1 layer\(s\)"),
        (ONE * 2, ShapeError, r"for each of 1 layer\(s\)"),
        ([ONE[0][:1]], ShapeError, "a pair"),
        ([ONE[0][::-1]], ShapeError, r"layer 0 are \(batch, 2\) and \(batch, 3\), not \(1, 3\) and \(1, 2\)"),
        ([([[1.0, 2.0]] * 2, [[1.0, 1.0, 1.0]])], ShapeError, r"not \(2, 2\) and \(1, 3\)"),
        ([([1.0, 2.0], [1.0, 1.0, 1.0])], ShapeError, r"not \(2,\) and \(3,\)"),
        ([(np.zeros((0, 2), np.float32), np.zeros((0, 3), np.float32))], ShapeError, r"not \(0, 2\) and \(0, 3\)"),
    ],
)
def test_statistics_that_are_missing_or_do_not_fit_change_nothing(device, statistics, error, message):
    params = [ow.Parameter(np.ones(shape, np.float32), device=device) for shape in ((3, 2), (3,))]
    optimizer = ow.optim.KFAC(params)
    with pytest.raises(error, match=message):
        optimizer.step(grads=[np.ones((3, 2)), np.ones(3)], statistics=statistics)
    assert all((param.numpy() == 1.0).all() for param in params)
    assert optimizer.state_dict()["state"] == {}
    optimizer.step(statistics=ONE)
    assert all((param.numpy() != 1.0).any() for param in params)


@pytest.mark.parametrize("shapes", [[(3,)], [(3, 2), (2,)], [(3, 2), (3,), (3,)], [(2, 3, 4)], [(3, 2), ()], [(0, 2)]])
def test_parameters_that_are_no_layers_are_refused(shapes):
    params = [ow.Parameter(np.ones(shape, np.float32), device="cpu") for shape in shapes]
    with pytest.raises(ValueError, match=r"KFAC takes the parameters of layers: .* has the shape \("):
        ow.optim.KFAC(params)
    with pytest.raises(ValueError, match="KFAC takes the parameters of layers"):
        ow.optim.KFAC([ow.Parameter([[1.0]], device="cpu")]).add_param_group({"params": params})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "Invalid learning rate: -1.0"),
        ({"damping": -1.0}, "Invalid damping value: -1.0"),
        ({"stat_decay": 1.0}, "Invalid stat_decay value: 1.0"),
        ({"kl_clip": -1.0}, "Invalid kl_clip value: -1.0"),
        ({"kl_clip": 0.0}, "Invalid kl_clip value: 0.0"),
        ({"update_freq": 0}, "Invalid update_freq value: 0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ow.optim.KFAC([ow.Parameter([[1.0]], device="cpu")], **options)


def test_what_does_not_go_together_is_refused():
    groups = [{"params": [ow.Parameter([[1.0]], device="cpu")], "in_first": in_first} for in_first in (True, False)]
    with pytest.raises(ValueError, match="one in_first for all groups"):
        ow.optim.KFAC(groups)
    params = [ow.Parameter(np.ones(shape, np.float32), device="cpu") for shape in ((3, 2), (3,))]
    optimizer = ow.optim.KFAC(params, statistics=lambda: ONE)
    with pytest.raises(ValueError, match="the bias of a layer has a gradient, and its weight has none"):
        optimizer.step(grads=[None, np.ones(3)])
    params[1].grad = None
    with pytest.raises(ShapeError, match="the statistics of layer 0 are float32 on cpu"):
        optimizer.step(statistics=[(ow.ones((1, 2), "cpu", "int32"), ONE[0][1])])
    with pytest.raises(UnsupportedError, match="without a GradScaler"):
        ow.optim.GradScaler("cpu").step(optimizer)


def test_layers_and_biases_without_a_gradient_stay(device):
    params, grads = make_problem(SHAPES, 1)
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = ow.optim.KFAC(ours, statistics=lambda: draw_statistics(LAYERS))
    optimizer.step(grads=[grads[0][0], None, None, *grads[0][3:]])
    moved = [not np.array_equal(mine.numpy(), start) for mine, start in zip(ours, params, strict=True)]
    assert moved == [True, False, False, True, True]
    state = optimizer.state_dict()["state"]
    assert set(state) == {0, 3, 4}
    # The weight moves as if its bias had a gradient of zeros.
    alone = [ow.Parameter(param, device=device) for param in params]
    gradients = [grads[0][0], np.zeros(4), np.zeros((3, 4)), *grads[0][3:]]
    ow.optim.KFAC(alone).step(grads=gradients, statistics=draw_statistics(LAYERS))
    np.testing.assert_allclose(ours[0].numpy(), alone[0].numpy(), rtol=0, atol=1e-6)


def test_a_state_dict_goes_on_where_it_was_taken_and_so_does_a_copy(device):
    params, grads = make_problem(SHAPES, 9)
    options = {"damping": 0.1, "update_freq": 3}
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = ow.optim.KFAC(ours, **options)
    for number, step_grads in enumerate(grads[:5]):
        optimizer.step(grads=step_grads, statistics=draw_statistics(LAYERS, seed=number))
    state = optimizer.state_dict()
    shapes = {name: array.shape for name, array in state["state"][0].items() if array.shape}
    assert shapes == {"momentum_buffer": (4, 6), "A_bar": (7, 7), "A_bar_inverse": (7, 7)} | dict.fromkeys(
        ("G", "G_inverse"), (4, 4)
    )
    assert set(state["state"][2]) == {"step", "momentum_buffer", "A", "A_inverse", "G", "G_inverse"}
    assert set(state["state"][1]) == {"step", "momentum_buffer"}
    lying = {name: (array + 0.0).numpy() for name, array in optimizer.state[ours[0]].items() if array.shape}
    for name, array in lying.items():
        np.testing.assert_array_equal(array, state["state"][0][name])
    others = [ow.Parameter(mine.numpy(), device=device) for mine in ours]
    again = ow.optim.KFAC(others)
    again.load_state_dict(state)
    copied = copy.deepcopy(optimizer)
    for number, step_grads in enumerate(grads[5:]):
        for array in (optimizer, again, copied):
            array.step(grads=step_grads, statistics=draw_statistics(LAYERS, seed=100 + number))
    for array, *twins in zip(ours, others, copied.param_groups[0]["params"], strict=True):
        for twin in twins:
            np.testing.assert_array_equal(array.numpy(), twin.numpy())
    wrong = {0: {**state["state"][0], "A_bar": np.zeros((6, 6), np.float32)}}
    with pytest.raises(CheckpointError, match=r"of parameter 0 has the shape \(6, 6\)"):
        again.load_state_dict({**state, "state": wrong})


def test_a_group_that_is_added_keeps_the_state(device):
    params, grads = make_problem(SHAPES, 6)
    results = []
    for is_disturbed in (False, True):
        ours = [ow.Parameter(param, device=device) for param in params]
        optimizer = ow.optim.KFAC(ours[:2], damping=0.1, update_freq=4, kl_clip=None)
        for number, step_grads in enumerate(grads):
            if number == 3 and is_disturbed:
                optimizer.add_param_group({"params": ours[2:], "lr": 0.01})
            count = len(optimizer._params())
            layers = LAYERS[: 1 if count == 2 else 3]
            optimizer.step(grads=step_grads[:count], statistics=draw_statistics(layers, seed=number))
        results.append([mine.numpy() for mine in ours[:2]])
    for plain, disturbed in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, disturbed)


def test_gradients_go_through_transforms_once(device):
    params, grads = make_problem(SHAPES, 6)
    make = ow.optim.transforms
    chain = [make.clip_by_value(1.0), make.accumulate(2, "sum"), make.clip_by_norm(1e6)]
    results = []
    for transforms in (chain, []):
        ours = [ow.Parameter(param, device=device) for param in params]
        optimizer = ow.optim.KFAC(ours, transforms=transforms, damping=0.1, weight_decay=0.1)
        for first, second in zip(grads[::2], grads[1::2], strict=True):
            both = [[np.clip(grad, -1, 1) for grad in step_grads] for step_grads in (first, second)]
            summed = [[array + other for array, other in zip(*both, strict=True)]]
            for step_grads in [first, second] if transforms else summed:
                optimizer.step(grads=step_grads, statistics=draw_statistics(LAYERS))
        results.append([mine.numpy() for mine in ours])
    for param, other in zip(*results, strict=True):
        np.testing.assert_allclose(param, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("count", [1, 10])
def test_dispatches_but_for_statistics_do_not_depend_on_the_number_of_layers_of_a_shape(device, count):
    params = [ow.Parameter(values, device=device) for values in make_problem([(4, 6), (4,)] * count, 0)[0]]
    optimizer = ow.optim.KFAC(params, statistics=lambda: draw_statistics([(6, 4)] * count))
    cost = cost_of_a_replayed_step(optimizer, params, device)
    inverses = 2 * (1 + 2 * 24 + 1)
    statistics = count * (1 + 5)  # ones, and products
    assert (cost.dispatches, cost.submits, cost.copies) == (5 + statistics + inverses + 6, 1, 0)
    assert (cost.bytes_up, cost.bytes_down) == (0, 0)


def test_more_layers_than_a_kernel_sees_at_once(device, monkeypatch):
    shapes = [(24, 40), (24,), (64, 64), (24, 40), (24, 40), (24,), (64, 64), (64,), (24, 40), (24,)]
    layers = [(40, 24), (64, 64), (40, 24), (40, 24), (64, 64), (40, 24)]
    params, grads = make_problem(shapes, 2)
    results = []
    for limit in (device.capabilities.max_binding_bytes, 65536):
        monkeypatch.setattr(device, "capabilities", replace(device.capabilities, max_binding_bytes=limit))
        ours = [ow.Parameter(param, device=device) for param in params]
        optimizer = ow.optim.KFAC(ours, damping=0.1)
        for number, step_grads in enumerate(grads):
            optimizer.step(grads=step_grads, statistics=draw_statistics(layers, seed=number))
        results.append([mine.numpy() for mine in ours])
    for whole, in_parts in zip(*results, strict=True):
        np.testing.assert_allclose(whole, in_parts, rtol=0, atol=1e-6)


def test_a_compiled_step_takes_its_statistics_from_backward(device):
    """A tensor that is added to the outputs of a layer has their gradient, in a network 64-32-10."""
    images, labels = (array[:256] for array in load_digits()[:2])
    rng = np.random.default_rng(0)
    shapes = [(64, 32), (32,), (32, 10), (10,)]
    starts = [rng.standard_normal(shape) * (shape[0] ** -0.5 if len(shape) > 1 else 0) for shape in shapes]
    x = ow.tensor(np.asarray(images, np.float32).reshape(256, 64), device=device)
    labels = ow.tensor(np.asarray(labels, np.int32), device=device)
    params = w0, b0, w1, b1 = [ow.Parameter(start.astype(np.float32), device=device) for start in starts]
    added = [ow.zeros((256, size), device, requires_grad=True) for size in (32, 10)]
    optimizer = ow.optim.KFAC(params, lr=0.1, damping=1e-2, kl_clip=1e-2, in_first=True)

    def train_step():
        optimizer.zero_grad()
        hidden = (x @ w0 + b0 + added[0]).relu()
        for param in added:
            param.grad = None
        loss = ow.cross_entropy(hidden @ w1 + b1 + added[1], labels)
        loss.backward()
        optimizer.step(statistics=[(x, added[0].grad * 256.0), (hidden, added[1].grad * 256.0)])
        return loss

    step = ow.compile(train_step, device=device)
    before = step().item()
    cost = device.stats.copy()
    step()
    assert (device.stats - cost).bytes_down == 0
    for _ in range(38):
        after = step()
    assert after.item() <= before / 20
