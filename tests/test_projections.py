"""Projections of parameters against float64 references and optax."""

import gc

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.optim.in_place import InPlace
from optirs_web.runtime.rules import Rule

P = ow.optim.projections
SHAPES = [(1,), (3,), (300,), (16, 65), (40, 100)]


def to_simplex(values, total):
    """By sorting (Duchi et al. 2008, figure 1)."""
    ordered = np.sort(np.ravel(values))[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, ordered.size + 1)
    return np.maximum(values - excess[np.nonzero(ordered > excess)[0][-1]], 0)


def to_l1_ball(values, radius):
    if np.abs(values).sum() <= radius:
        return values
    return np.sign(values) * to_simplex(np.abs(values), radius)


CASES = {
    "box": ("box", {"lower": -0.5, "upper": 1.0}, lambda x: np.clip(x, -0.5, 1.0)),
    "non-negative": ("non_negative", {}, lambda x: np.maximum(x, 0)),
    "l2": ("l2_ball", {"radius": 2.0}, lambda x: x * min(1.0, 2.0 / np.linalg.norm(x))),
    "sphere": ("sphere", {"radius": 2.0}, lambda x: x * 2.0 / np.linalg.norm(x)),
    "l1": ("l1_ball", {"radius": 5.0}, lambda x: to_l1_ball(x, 5.0)),
    "simplex": ("simplex", {}, lambda x: to_simplex(x, 1.0)),
    "simplex of 7": ("simplex", {"total": 7.0}, lambda x: to_simplex(x, 7.0)),
}


def make_values():
    rng = np.random.default_rng(0)
    values = [1.5 * rng.standard_normal(shape) for shape in SHAPES]
    # Values that fall by a constant factor take Newton's method most steps.
    values += [2.0 ** -np.arange(25), np.exp(-np.arange(500) / 3.0), 10 * rng.random(1000) ** 8]
    return [value.astype(np.float32) for value in values]


@pytest.mark.parametrize("name", CASES)
def test_a_projection_follows_its_reference(name, numerics):
    kind, arguments, reference = CASES[name]
    values = make_values()
    for got, value in zip(numerics("projected", kind, arguments, values), values, strict=True):
        want = reference(value.astype(float))
        assert np.abs(np.asarray(got) - want).max() <= 5e-6 * max(np.abs(want).max(), 1e-9)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("l2_ball", "l2_ball"), ("sphere", "l2_sphere"), ("l1_ball", "l1_ball"), ("simplex", "simplex")],
)
def test_a_projection_is_optaxs(device, optax, ours, theirs):
    from optimizer_references import optax_twins  # float64

    values = np.random.default_rng(0).standard_normal((20, 30)).astype(np.float32)
    param = ow.Parameter(values, device=device)
    getattr(P, ours)(2.0).apply([param])
    array = optax_twins.jax.numpy.asarray(values, float)
    want = np.asarray(getattr(optax.projections, f"projection_{theirs}")(array.ravel(), 2.0)).reshape(values.shape)
    assert np.abs(param.numpy() - want).max() <= 5e-6 * np.abs(want).max()


def test_a_spectral_norm_is_limited(device):
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in [(5, 80), (3, 4, 5), (7,)]]
    params = [ow.Parameter(value, device=device) for value in values]
    P.spectral(1.5, iterations=100).apply(params)
    for param in params[:2]:
        norm = np.linalg.norm(param.numpy().reshape(len(param), -1), 2)
        assert norm == pytest.approx(1.5, rel=1e-4)
    assert (params[2].numpy() == values[2]).all()
    small = ow.Parameter(values[0] / 100, device=device)
    P.spectral(1.5, iterations=5).apply([small])
    assert (small.numpy() == values[0] / 100).all()


def test_the_power_iteration_goes_on_from_call_to_call_in_a_recorded_step(device):
    rng = np.random.default_rng(0)
    param = ow.Parameter(rng.standard_normal((20, 30)).astype(np.float32), device=device)
    optimizer = ow.optim.SGD([param], lr=0.0, transforms=[P.spectral(1.0)])
    param.grad = np.zeros((20, 30), np.float32)
    step = ow.compile(lambda: optimizer.step(), device=device)
    for _ in range(60):
        step()
    assert np.linalg.norm(param.numpy(), 2) == pytest.approx(1.0, rel=1e-3)


def test_an_optimizer_projects_what_comes_out_of_each_step(device):
    weights, bias = ow.Parameter([0.5, 0.5], device=device, name="weights"), ow.Parameter([0.0], device=device)
    transforms = [ow.optim.transforms.clip_by_value(1.0), P.non_negative(mask=lambda param: param.name == "weights")]
    optimizer = ow.optim.SGD([weights, bias], lr=1.0, transforms=transforms)
    weights.grad, bias.grad = [0.25, 9.0], [9.0]
    step = ow.compile(lambda: optimizer.step(), device=device)
    for want in ([0.25, 0.0], [0.0, 0.0]):
        step()
        assert weights.tolist() == want
    assert bias.item() == -2.0


def test_a_tensor_of_zeros_stays_on_its_way_to_the_sphere(device):
    param = ow.Parameter([0.0, 0.0], device=device)
    P.sphere().apply([param])
    assert param.tolist() == [0.0, 0.0]


def test_a_parameter_in_the_place_of_one_that_has_gone_is_another(device):
    """Buffers are kept by the parameter's id, which Python reuses."""
    made = InPlace(Rule("average", folder="arena"), [ow.Parameter([1.0], device=device)])
    gc.collect()
    assert not made.fits([ow.Parameter([2.0], device=device)])


@pytest.mark.parametrize("make", [lambda: P.l2_ball(0.0), lambda: P.simplex(-1.0), lambda: P.spectral(iterations=0)])
def test_arguments_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match=r"Invalid|1 or more iterations"):
        make()


def test_an_empty_box_is_refused():
    with pytest.raises(ValueError, match="is empty"):
        P.box(1.0, 0.0)
