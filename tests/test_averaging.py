"""Averages of parameters against float64 references and torch, swapped in and out, and continued from state dicts."""

import copy
import pickle

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import CheckpointError, ShapeError, UnsupportedError

A = ow.optim.averaging
SHAPES = [(), (3,), (257,), (16, 65)]

# For each the weight of the newest of t values.
CASES = {
    "ema": ("EMA", {"decay": 0.9}, lambda t: 0.1 / (1 - 0.9**t)),
    "ema slow": ("EMA", {"decay": 0.9999}, lambda t: 1e-4 / (1 - 0.9999**t)),
    "ema of no memory": ("EMA", {"decay": 0.0}, lambda t: 1.0),
    "ema uncorrected": ("EMA", {"decay": 0.9, "bias_correction": False}, lambda t: 1.0 if t == 1 else 0.1),
    "ema warm-up": (
        "EMA",
        {"decay": 0.7, "warmup": True},
        lambda t: 1.0 if t == 1 else 1 - min(0.7, (1 + t) / (10 + t)),
    ),
    "swa": ("SWA", {}, lambda t: 1 / t),
    "polyak": ("PolyakAverage", {}, lambda t: 1 / t),
    "polyak power": ("PolyakAverage", {"power": 3.0}, lambda t: 4 / (t + 3)),
}


def make_values(count, shapes=SHAPES):
    rng = np.random.default_rng(0)
    return [[rng.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(count)]


def assert_close(got, want):
    for values, other in zip(got, want, strict=True):
        assert np.abs(np.asarray(values) - other).max() <= 5e-6 * np.abs(other).max()


@pytest.mark.parametrize("name", CASES)
def test_an_average_follows_its_reference(name, numerics):
    kind, arguments, weight = CASES[name]
    values = make_values(100)
    want = [np.zeros(shape) for shape in SHAPES]
    for number, arrays in enumerate(values):
        want = [old + weight(number + 1) * (array.astype(float) - old) for old, array in zip(want, arrays, strict=True)]
    actual, swapped, back = numerics("averages", kind, arguments, values)
    assert_close(actual, want)
    assert_close(swapped, want)
    for param, last in zip(back, values[-1], strict=True):
        assert (np.asarray(param).ravel() == last.ravel()).all()


def test_the_corrected_average_is_adams_formula():
    values, decay, biased = np.random.default_rng(0).standard_normal(50), 0.9, 0.0
    weight = CASES["ema"][2]
    average = 0.0
    for t, value in enumerate(values, 1):
        biased = decay * biased + (1 - decay) * value
        average += weight(t) * (value - average)
        assert average == pytest.approx(biased / (1 - decay**t), rel=1e-12)


@pytest.mark.parametrize("kind", ["SWA", "EMA"])
def test_averages_are_those_of_torchs_averaged_model(device, torch, kind):
    from torch.optim import swa_utils

    values = make_values(20, [(3, 4)])
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.zeros(3, 4, dtype=torch.float64))
    options = {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.8)} if kind == "EMA" else {}
    theirs = swa_utils.AveragedModel(model, **options)
    param = ow.Parameter(np.zeros((3, 4)), device=device)
    ours = A.SWA([param]) if kind == "SWA" else A.EMA([param], 0.8, bias_correction=False)
    for (array,) in values:
        param.assign(array)
        ours.update_parameters()
        with torch.no_grad():
            model.weight.copy_(torch.tensor(array))
        theirs.update_parameters(model)
    assert_close([ours.averages()[0].numpy()], [theirs.module.weight.detach().numpy()])
    assert ours.n_averaged == int(theirs.n_averaged)


def test_an_average_in_a_compiled_step_costs_two_dispatches(device):
    params = [ow.Parameter(np.ones(shape, np.float32), device=device) for shape in SHAPES * 20]
    optimizer, average = ow.optim.SGD(params, lr=0.5), A.EMA(params, 0.5)
    for param in params:
        param.grad = np.ones(param.shape, np.float32)

    def step():
        optimizer.step()
        average.update_parameters()

    recorded = ow.compile(step, device=device)
    recorded()
    before = device.stats.copy()
    recorded()
    cost = device.stats - before
    assert (cost.dispatches, cost.submits, cost.bytes_up, cost.bytes_down) == (4, 1, 0, 0)
    assert average.averages()[1].tolist() == pytest.approx([(0.5 * 0.5 + 0.0) / 1.5] * 3)


def test_an_optimizer_goes_on_where_it_was_after_a_look_at_the_average(device):
    param = ow.Parameter([1.0], device=device)
    optimizer, average = ow.optim.SGD([param], lr=1.0), A.SWA([param])
    average.update_parameters()
    optimizer.step(grads=[[2.0]])
    average.update_parameters()
    with average.swapped():
        assert param.item() == 0.0
        with pytest.raises(UnsupportedError, match="swap back"):
            average.update_parameters()
    optimizer.step(grads=[[1.0]])
    assert param.item() == -2.0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda average: pickle.loads(pickle.dumps(average))])
@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_copy_has_its_own_parameters_and_averages(device, copied, is_swapped):
    average = A.SWA([ow.Parameter([1.0], device=device)])
    average.update_parameters()
    average.params[0].assign([3.0])
    if is_swapped:
        average.swap()
    other = copied(average)
    if is_swapped:
        other.swap()
    other.update_parameters()
    assert (other.params[0].item(), other.averages()[0].item(), other.n_averaged) == (3.0, 2.0, 2)
    assert (average.averages()[0].item(), average.n_averaged) == (1.0, 1)


def test_averages_that_are_swapped_are_not_swapped_again():
    average = A.SWA([ow.Parameter([1.0], device="cpu")])
    average.update_parameters()
    average.params[0].assign([3.0])
    with average.swapped():
        with pytest.raises(UnsupportedError, match="already hold their averages"), average.swapped():
            pass
        assert average.params[0].item() == 1.0
    assert average.params[0].item() == 3.0


@pytest.mark.parametrize(
    "broken",
    [
        {"n_averaged": 1e40},
        {"n_averaged": 2.7},
        {"n_averaged": 1 << 24},
        {"averages": {"x": [2.0]}},
        {"averages": {0: "x"}},
    ],
)
def test_a_state_dict_that_does_not_fit_changes_nothing(broken):
    average = A.SWA([ow.Parameter([1.0], device="cpu")])
    average.update_parameters()
    with pytest.raises(CheckpointError):
        average.load_state_dict({"n_averaged": 1, "averages": {0: [2.0]}, **broken})
    assert (average.averages()[0].item(), average.n_averaged) == (1.0, 1)


def test_before_the_first_value_a_swap_changes_nothing(device):
    param = ow.Parameter([1.0], device=device)
    with A.SWA([param]).swapped():
        assert param.item() == 1.0


def test_an_average_continues_from_its_state_dict(device):
    values = make_values(10)
    first, second = ([ow.Parameter(np.zeros(shape), device=device) for shape in SHAPES] for _ in range(2))
    optimizer, other = A.EMA(first, 0.9), A.EMA(second, 0.9)
    for number, arrays in enumerate(values):
        if number == 5:
            other.load_state_dict(optimizer.state_dict())
        for params, average in ((first, optimizer), (second, other)):
            for param, value in zip(params, arrays, strict=True):
                param.assign(value)
            if average is optimizer or number >= 5:
                average.update_parameters()
    assert other.n_averaged == 10
    for got, want in zip(other.averages(), optimizer.averages(), strict=True):
        assert (got.numpy() == want.numpy()).all()


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"n_averaged": 1, "averages": {}},
        {"n_averaged": 1, "averages": {0: [1.0], 1: [1.0]}},
        {"n_averaged": 1, "averages": {0: [1.0, 2.0]}},
    ],
)
def test_a_state_dict_that_does_not_fit_is_refused(broken):
    average = A.SWA([ow.Parameter([1.0], device="cpu")])
    with pytest.raises(CheckpointError):
        average.load_state_dict(broken)


def test_a_soup_weighs_models(device):
    models = [[ow.Parameter(np.full((2, 3), value), device=device)] for value in (1.0, 2.0, 6.0)]
    assert A.soup(models)[0].numpy() == pytest.approx(np.full((2, 3), 3.0))
    assert A.soup(models, [1, 1, 2])[0].numpy() == pytest.approx(np.full((2, 3), 3.75))
    with pytest.raises(ShapeError, match="different shapes"):
        A.soup([models[0], [ow.Parameter([1.0], device=device)]])
    for wrong in ([1.0], [0.0, 0.0, 0.0]):
        with pytest.raises(ValueError, match="as many weights"):
            A.soup(models, wrong)
    with pytest.raises(ValueError, match="at least one model"):
        A.soup([])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda params: A.EMA(params, decay=1.0), "Invalid decay value 1"),
        (lambda params: A.PolyakAverage(params, power=-1.0), "Invalid power value: -1"),
        (lambda params: A.SWA([]), "an average needs parameters"),
    ],
)
def test_arguments_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make([ow.Parameter([1.0], device="cpu")])
