"""Optimizers with norms of tensors: what they cost, and that what is measured over all tensors is one number."""

import numpy as np
import pytest
from optimizer_problems import replay_cost
from optimizer_references import norms

import optirs_web as ow
from optirs_web.errors import NonFiniteError

DISTANCES = ("Prodigy", "DAdaptSGD", "DAdaptAdaGrad", "DAdaptAdam")
NAMES = ("AdamMini", "DoG", "LAMB", "LARS", "LDoG", "NovoGrad", *DISTANCES)
REFERENCES = {
    "Prodigy": norms.prodigy,
    "DAdaptSGD": norms.dadapt_sgd,
    "DAdaptAdaGrad": norms.dadapt_adagrad,
    "DAdaptAdam": norms.dadapt_adam,
}

by_name = pytest.mark.parametrize("name", NAMES)
by_distance = pytest.mark.parametrize("name", DISTANCES)


def parameters(device, *values):
    return [ow.Parameter(np.asarray(value, np.float32), device=device) for value in values]


def estimates(optimizer):
    """Return the estimate `d` in the state of each tensor, which all tensors share."""
    return [float(entry["d"]) for entry in optimizer.state_dict()["state"].values()]


@by_name
def test_a_replayed_step_over_200_tensors_is_four_dispatches_and_reads_nothing_back(device, name):
    sizes = [int(size) for size in np.random.default_rng(0).integers(1, 3000, 200)]
    params = parameters(device, *(np.ones(size) for size in sizes))
    optimizer = getattr(ow.optim, name)(params)
    cost = replay_cost(optimizer, params, device)
    assert (cost.dispatches, cost.submits, cost.replays, cost.copies) == (4, 1, 1, 0)
    assert (cost.bytes_up, cost.bytes_down) == (0, 0)


@by_name
def test_skip_nonfinite_leaves_the_measures_too_as_they_were(device, name):
    params = parameters(device, [1.0, 2.0], [3.0])
    optimizer = getattr(ow.optim, name)(params, skip_nonfinite=True)
    good = [[1.0, -1.0], [0.5]]
    for grads in (good, good):
        optimizer.step(grads=grads)
    before = [param.tolist() for param in params], optimizer.state_dict()["state"]
    optimizer.step(grads=[[1.0, float("nan")], None])
    np.testing.assert_equal(([param.tolist() for param in params], optimizer.state_dict()["state"]), before)
    with pytest.raises(NonFiniteError):
        optimizer.check_finite()


@pytest.mark.parametrize("name", ["LAMB", "LARS"])
def test_the_ratio_of_a_tensor_of_zeros_is_one(device, name):
    zeros, ones = parameters(device, [0.0, 0.0], [1.0])
    getattr(ow.optim, name)([zeros, ones], lr=0.5).step(grads=[[1.0, -1.0], [0.0]])
    assert zeros.tolist() == pytest.approx([-0.5, 0.5], rel=1e-5)
    assert ones.item() == 1.0


# d: one number over all tensors.


@by_distance
def test_d_finds_its_magnitude_from_a_millionth(device, name):
    rng = np.random.default_rng(0)
    params = [rng.standard_normal(shape) for shape in ((40,), (3, 5))]
    grads, want = [], params
    for _ in range(60):  # on its way to a minimum at 2, with a gradient that is that of the reference
        grads.append([array - 2.0 for array in want])
        want, want_state = REFERENCES[name](params, grads)
    ours = parameters(device, *params)
    optimizer = getattr(ow.optim, name)(ours)
    for step_grads in grads:
        optimizer.step(grads=[grad.astype(np.float32) for grad in step_grads])
    assert want_state[0]["d"] > 1e-3
    # At first a parameter moves by its last bits, and Prodigy measures by how much: what float32 rounds stays in its d.
    tolerance = 1e-2 if name == "Prodigy" else 1e-5
    assert estimates(optimizer) == pytest.approx([float(want_state[0]["d"])] * 2, rel=tolerance)
    for got, values in zip(ours, want, strict=True):
        assert np.abs(got.numpy() - values).max() <= tolerance * np.abs(values).max()


def test_tensors_without_a_gradient_rest_but_know_d(device):
    rng = np.random.default_rng(0)
    params = [rng.standard_normal(shape) for shape in ((4,), (3, 5), (1,), (300,))]
    slopes = [rng.standard_normal(param.shape) for param in params]
    # The last one has its first gradient when d has grown; no step has all.
    grads = [
        [slope * 0.9**k if (k + i) % 3 and (i < 3 or k > 20) else None for i, slope in enumerate(slopes)]
        for k in range(40)
    ]
    want, want_state = norms.prodigy(params, grads, d0=0.01)
    assert want_state[0]["d"] > 0.02
    ours = parameters(device, *params)
    optimizer = ow.optim.Prodigy(ours, d0=0.01)
    for k, step_grads in enumerate(grads):
        optimizer.step(grads=[None if grad is None else grad.astype(np.float32) for grad in step_grads])
        if k in (5, 39):
            assert len(set(estimates(optimizer))) == 1
            assert len(estimates(optimizer)) == 4
    state = optimizer.state_dict()["state"]
    for i, values in enumerate(want):
        assert np.abs(ours[i].numpy() - values).max() <= 2e-5 * np.abs(values).max()
        for key, value in want_state[i].items():
            assert np.abs(state[i][key] - value).max() <= 1e-4 * np.abs(value).max(), key


@by_distance
def test_a_new_group_and_a_loaded_optimizer_know_d(device, name):
    def run(optimizer, count):
        for _ in range(count):
            optimizer.step(grads=[[1.0, -1.0], None, *([[2.0]] if len(optimizer.param_groups) > 1 else [])])

    first, resting, third = parameters(device, [0.0, 0.0], [1.0], [1.0])
    optimizer = getattr(ow.optim, name)([first, resting], d0=1e-3)
    run(optimizer, 8)
    d = estimates(optimizer)
    assert d[0] > 2e-3
    optimizer.add_param_group({"params": [third]})
    assert estimates(optimizer) == [*d, d[0]]
    run(optimizer, 3)
    assert len(set(estimates(optimizer))) == 1

    copies = parameters(device, *(tensor.numpy() for tensor in (first, resting, third)))
    other = getattr(ow.optim, name)([{"params": copies[:2]}, {"params": copies[2:]}], d0=1e-3)
    other.load_state_dict(optimizer.state_dict())
    for optimizer_ in (optimizer, other):
        run(optimizer_, 3)
        optimizer_.step(grads=[None, [1.0], None])
    np.testing.assert_equal(other.state_dict()["state"], optimizer.state_dict()["state"])
    assert [copied.tolist() for copied in copies] == [tensor.tolist() for tensor in (first, resting, third)]


@by_distance
def test_a_group_has_the_learning_rate_of_all_or_none(device, name):
    moving, frozen = parameters(device, [1.0], [2.0])
    groups = [{"params": [moving], "d0": 0.125}, {"params": [frozen], "lr": 0.0, "d0": 5.0}]
    optimizer = getattr(ow.optim, name)(groups)
    alone = parameters(device, [1.0])
    other = getattr(ow.optim, name)(alone, d0=0.125)
    for _ in range(4):
        optimizer.step(grads=[[1.0], [-3.0]])
        other.step(grads=[[1.0]])
    assert frozen.item() == 2.0
    assert moving.item() == alone[0].item() != 1.0
    assert estimates(optimizer) == estimates(other) * 2
    optimizer.param_groups[1]["lr"] = 0.5
    with pytest.raises(ValueError, match="since d is one number"):
        optimizer.step(grads=[[1.0], [1.0]])


@by_distance
def test_steps_before_the_first_slope_change_nothing(device, name):
    (param,) = parameters(device, [1.0, 2.0])
    optimizer = getattr(ow.optim, name)([param], d0=0.5)
    optimizer.step(grads=[[0.0, 0.0]])
    assert param.tolist() == [1.0, 2.0]
    assert estimates(optimizer) == [0.5]
    optimizer.step(grads=[[1.0, 0.0]])
    assert param.tolist()[0] < 1.0
    optimizer.check_finite()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("LARS", {"trust_coefficient": -1.0}, "Invalid trust_coefficient value: -1"),
        ("LARS", {"momentum": 0.0, "nesterov": True}, "Nesterov momentum requires a momentum"),
        ("Prodigy", {"d0": 0.0}, "Invalid d0 value: 0"),
        ("Prodigy", {"eps": 0.0}, "Invalid epsilon value: 0"),
        ("Prodigy", {"beta3": 1.0}, "Invalid beta3 value: 1"),
        ("DAdaptSGD", {"growth_rate": 0.5}, "Invalid growth_rate value: 0.5"),
        ("DAdaptAdam", {"d0": "much"}, "Invalid d0 value: much"),
        ("DoG", {"reps_rel": 0.0}, "Invalid reps_rel value: 0"),
    ],
)
def test_options_out_of_range_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(ow.optim, name)([ow.Parameter([1.0], device="cpu")], **options)
