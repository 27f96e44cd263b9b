"""Optimizers that take more than gradients, or have parts that run on request."""

import numpy as np
import pytest
from optimizer_problems import make_problem
from optimizer_references import modern

import optirs_web as ow
from optirs_web.errors import ShapeError, UnsupportedError

SHAPES = [(3,), (300,), (4, 5)]
SCHEDULE_FREE = {
    "SGDScheduleFree": (modern.sgd_schedule_free, {"lr": 0.1, "warmup_steps": 5, "r": 1.0, "weight_decay": 0.01}),
    "AdamWScheduleFree": (modern.adamw_schedule_free, {"lr": 0.01, "warmup_steps": 5, "weight_decay": 0.1}),
}
schedule_free = pytest.mark.parametrize("name", SCHEDULE_FREE)


def assert_close(ours, want, tolerance=5e-6):
    for got, expected in zip(ours, want, strict=True):
        assert np.abs(np.asarray(got.tolist()) - expected).max() <= tolerance * np.abs(expected).max()


# Schedule-Free.


@schedule_free
def test_eval_gives_the_average_and_train_goes_back(device, name):
    reference, options = SCHEDULE_FREE[name]
    params, grads = make_problem(SHAPES, 40)
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = getattr(ow.optim, name)(ours, **options)
    optimizer.eval()  # x and y are equal here
    optimizer.train()
    for count, step_grads in enumerate(grads, 1):
        optimizer.step(grads=step_grads)
        if count % 10 == 0:
            optimizer.eval()
            optimizer.eval()
            assert_close(ours, reference(params, grads[:count], **options, average=True)[0])
            optimizer.train()
            assert_close(ours, reference(params, grads[:count], **options)[0])


@schedule_free
def test_a_saved_average_is_trained_further(device, name):
    reference, options = SCHEDULE_FREE[name]
    params, grads = make_problem(SHAPES, 20)
    first = [ow.Parameter(param, device=device) for param in params]
    optimizer = getattr(ow.optim, name)(first, **options)
    for step_grads in grads[:12]:
        optimizer.step(grads=step_grads)
    optimizer.eval()
    saved = optimizer.state_dict()
    assert saved["param_groups"][0]["train_mode"] is False

    second = [ow.Parameter(np.array(tensor.tolist(), np.float32), device=device) for tensor in first]
    again = getattr(ow.optim, name)(second, **options)
    again.load_state_dict(saved)
    again.train()
    for step_grads in grads[12:]:
        again.step(grads=step_grads)
    assert_close(second, reference(params, grads, **options)[0])


def test_the_average_is_not_stepped(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.SGDScheduleFree([w])
    w.grad = [1.0]
    step = ow.compile(lambda: optimizer.step(), device=device)
    step()
    optimizer.eval()
    before = w.tolist()
    for take in (optimizer.step, step):
        with pytest.raises(UnsupportedError, match=r"train\(\)"):
            take()
    assert w.tolist() == before
    optimizer.train()
    step()
    with pytest.raises(UnsupportedError, match="outside a compiled step"):
        ow.compile(lambda: optimizer.eval(), device=device)()


def test_learning_rates_of_zero_weigh_nothing(device):
    params, grads = make_problem(SHAPES, 10)
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = ow.optim.SGDScheduleFree(ours, lr=0.0)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
    assert_close(ours, params, 0.0)
    optimizer.param_groups[0]["lr"] = 0.1
    for step_grads in grads:
        optimizer.step(grads=step_grads)
    assert_close(ours, modern.sgd_schedule_free(params, grads, lr=0.1)[0])


# Diagonals of Hessians.


def spread(size):
    """A symmetric matrix that is not diagonal, and its eigenvalues from 1 to 10."""
    rng = np.random.default_rng(1)
    basis, _ = np.linalg.qr(rng.standard_normal((size, size)))
    return (basis * np.geomspace(1, 10, size) @ basis.T).astype(np.float32)


@pytest.mark.parametrize("distribution", ["gaussian", "rademacher"])
def test_sophia_takes_hutchinsons_estimate_every_few_steps(device, distribution):
    params, grads = make_problem(SHAPES, 25)
    hessians = [spread(param.size) for param in params]
    drawn = []

    def hvp(vectors):
        drawn.append([np.asarray(vector.tolist()) for vector in vectors])
        return [
            (hessian @ vector.reshape(-1)).reshape(vector.shape).astype(np.float32)
            for hessian, vector in zip(hessians, drawn[-1], strict=True)
        ]

    def diagonals(estimate, index):
        vector = drawn[estimate][index]
        return vector * (hessians[index].astype(np.float64) @ vector.reshape(-1)).reshape(vector.shape)

    options = {"lr": 0.01, "gamma": 1.0, "update_interval": 4}
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = ow.optim.SophiaH(ours, **options, hvp=hvp, distribution=distribution, seed=7)
    for step_grads in grads[:10]:
        optimizer.step(grads=step_grads)
    saved = optimizer.state_dict()
    again = ow.optim.SophiaH(ours, **options, hvp=hvp, distribution=distribution, seed=7)
    again.load_state_dict(saved)
    for step_grads in grads[10:]:
        again.step(grads=step_grads)
    assert len(drawn) == 7  # at steps 1, 5, ..., 25
    assert_close(ours, modern.sophia(params, grads, **options, diagonals=diagonals)[0])

    values = np.stack([draw[1] for draw in drawn])
    assert len({tuple(value) for value in values}) == 7
    assert abs(values.mean()) < 0.1
    assert values.var() == pytest.approx(1, abs=0.1)
    if distribution == "rademacher":
        assert set(np.unique(values)) == {-1.0, 1.0}


def test_sophia_looks_at_the_hessian_before_a_replay(device):
    params, grads = make_problem(SHAPES, 1)
    calls = []

    def hvp(vectors):
        calls.append(1)
        return [3.0 * vector for vector in vectors]

    options = {"lr": 0.01, "gamma": 1.0, "update_interval": 3}
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = ow.optim.SophiaH(ours, **options, hvp=hvp, distribution="rademacher")
    for mine, grad in zip(ours, grads[0], strict=True):
        mine.grad = grad
    step = ow.compile(lambda: optimizer.step(), device=device)
    for _ in range(7):
        step()
    assert len(calls) == 3
    assert_close(ours, modern.sophia(params, grads * 7, **options, diagonals=lambda *_: 3.0)[0])


def test_sophia_without_hvp_is_told_when_to_look(device):
    w = ow.Parameter([1.0, 1.0], device=device)
    optimizer = ow.optim.SophiaH([w], lr=1.0, betas=(0.0, 0.0), gamma=1.0, distribution="rademacher")
    with pytest.raises(ValueError, match="SophiaH needs hvp"):
        optimizer.update_hessian()
    optimizer.update_hessian(lambda vectors: [4.0 * vectors[0]])
    optimizer.step(grads=[[2.0, 8.0]])
    assert w.tolist() == [0.5, 0.0]
    with pytest.raises(UnsupportedError, match="outside a compiled step"):
        ow.compile(lambda: optimizer.update_hessian(lambda vectors: vectors), device=device)()


def test_diagonal_newton_solves_a_separable_quadratic_in_one_step(device):
    params, _ = make_problem(SHAPES, 0)
    curvatures = [np.linspace(0.5, 50, param.size).reshape(param.shape).astype(np.float32) for param in params]
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = ow.optim.DiagonalNewton(ours, damping=0.0, diagonal=lambda: curvatures)
    optimizer.step(grads=[c * param for c, param in zip(curvatures, params, strict=True)])
    for mine, start in zip(ours, params, strict=True):
        assert np.abs(np.asarray(mine.tolist())).max() <= 1e-6 * np.abs(start).max()


def test_diagonal_newton_asks_before_each_replay(device):
    w = ow.Parameter([8.0], device=device)
    curvature = iter([2.0, -4.0])
    optimizer = ow.optim.DiagonalNewton([w], damping=0.0, diagonal=lambda: [[next(curvature)]])
    w.grad = [4.0]
    step = ow.compile(lambda: optimizer.step(), device=device)
    step()
    assert w.tolist() == [6.0]
    step()
    assert w.tolist() == [5.0]  # downhill where the curvature is negative too


def test_a_diagonal_that_is_missing_or_does_not_fit_changes_nothing(device):
    w = ow.Parameter([1.0, 2.0], device=device)
    optimizer = ow.optim.DiagonalNewton([w])
    with pytest.raises(ValueError, match="DiagonalNewton needs diagonal"):
        optimizer.step(grads=[[1.0, 1.0]])
    for wrong in ([[1.0]], [[1.0, 1.0], [1.0]], []):
        optimizer.diagonal = lambda wrong=wrong: wrong
        with pytest.raises(ShapeError, match="diagonal must give a tensor for each parameter"):
            optimizer.step(grads=[[1.0, 1.0]])
    assert w.tolist() == [1.0, 2.0]


# Others.


def test_ftrl_from_zero_is_the_papers_algorithm_and_makes_zeros(device):
    params, grads = make_problem(SHAPES, 60)
    zeros = [np.zeros_like(param) for param in params]
    options = {"lr": 0.1, "lambda1": 8.0}
    ours = [ow.Parameter(one, device=device) for one in zeros]
    optimizer = ow.optim.FTRL(ours, **options)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
    want = modern.ftrl(zeros, grads, **options)[0]
    assert_close(ours, want)
    for mine, expected in zip(ours, want, strict=True):
        assert ((np.asarray(mine.tolist()) == 0) == (expected == 0)).all()
    assert 0 < sum((values == 0).sum() for values in want) < sum(array.size for array in want)


def test_adopts_first_step_only_looks(device):
    w = ow.Parameter([1.0, -2.0], device=device)
    optimizer = ow.optim.ADOPT([w], lr=1.0, weight_decay=0.5, decouple=True)
    optimizer.step(grads=[[3.0, 0.0]])
    assert w.tolist() == [1.0, -2.0]
    assert optimizer.state_dict()["state"][0]["exp_avg_sq"].tolist() == [9.0, 0.0]


def test_signs_alone_need_no_state(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.Signum([w], lr=0.5, momentum=0.0)
    optimizer.step(grads=[[1e-30]])
    assert w.tolist() == [0.5]
    assert optimizer.state_dict()["state"] == {}


@pytest.mark.parametrize("name", ["CautiousAdamW", "CautiousLion"])
def test_where_nothing_agrees_nothing_moves(device, name):
    w = ow.Parameter([1.0, 1.0], device=device)
    optimizer = getattr(ow.optim, name)([w], lr=0.5, betas=(0.9, 0.9), weight_decay=0.0)
    optimizer.step(grads=[[1.0, 1.0]])
    before = w.tolist()
    optimizer.step(grads=[[-1e-3, -1e-3]])
    assert w.tolist() == before


@pytest.mark.parametrize(
    ("name", "dispatches"), [("Lion", 2), ("CautiousLion", 4), ("CautiousAdamW", 4), ("MARS", 4), ("ADOPT", 2)]
)
def test_dispatches_of_a_step(device, name, dispatches):
    params, grads = make_problem(SHAPES, 1)
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = getattr(ow.optim, name)(ours)
    optimizer.step(grads=grads[0])
    before = device.stats.copy()
    optimizer.step()
    assert (device.stats - before).dispatches == dispatches


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Signum", {"momentum": 1.0}, "Invalid momentum value: 1.0"),
        ("Yogi", {"initial_accumulator": -1.0}, "Invalid initial_accumulator value: -1.0"),
        ("Adan", {"betas": (0.9, 0.99)}, "betas must be 3 numbers"),
        ("AdEMAMix", {"alpha": -1.0}, "Invalid alpha value: -1.0"),
        ("AdEMAMix", {"beta3_warmup": -1}, "Invalid beta3_warmup value: -1"),
        ("AdaBound", {"gamma": 0.0}, "Invalid gamma value: 0.0"),
        ("AdaBound", {"final_lr": -1.0}, "Invalid final_lr value: -1.0"),
        ("MARS", {"gamma": -1.0}, "Invalid gamma value: -1.0"),
        ("FTRL", {"lr": 0.0}, "Invalid learning rate: 0.0"),
        ("FTRL", {"lambda1": -1.0}, "Invalid lambda1 value: -1.0"),
        ("SGDScheduleFree", {"momentum": 0.0}, "Momentum must be between 0 and 1 exclusive: 0.0"),
        ("AdamWScheduleFree", {"betas": (0.0, 0.9)}, "Invalid beta parameter at index 0: 0.0"),
        ("AdamWScheduleFree", {"warmup_steps": -1}, "Invalid warmup_steps value: -1"),
        ("SophiaH", {"update_interval": 0}, "Invalid update_interval value: 0"),
        ("SophiaH", {"distribution": "cauchy"}, "Invalid distribution value: cauchy"),
        ("SophiaH", {"gamma": -1.0}, "Invalid gamma value: -1.0"),
        ("DiagonalNewton", {"damping": -1.0}, "Invalid damping value: -1.0"),
    ],
)
def test_options_out_of_range_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(ow.optim, name)([ow.Parameter([1.0], device="cpu")], **options)
