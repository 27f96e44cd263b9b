"""State in 16 and in 8 bits: the same on every device, as small and as good as it should be."""

import copy

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.cli.optimizers import all_optimizers, cost_of
from optirs_web.errors import CheckpointError, UnsupportedError
from optirs_web.optim.wrapper import Wrapper
from optirs_web.training import OPTIMIZERS, Config, DigitsTraining

SHAPES = [(3,), (5000,), (100, 100)]
KINDS = ["float16", "bfloat16", "8bit", {"exp_avg": "8bit", "exp_avg_sq": "bfloat16"}]
STEPS = 20


def by_kind(function):
    return pytest.mark.parametrize("kind", KINDS, ids=["float16", "bfloat16", "8bit", "mixed"])(function)


def problem():
    rng = np.random.default_rng(0)
    params = [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]
    grads = [[rng.standard_normal(shape).astype(np.float32) for shape in SHAPES] for _ in range(STEPS)]
    return params, grads


def trained(make, device, kind, **options):
    values, grads = problem()
    params = [ow.Parameter(value, device=device) for value in values]
    optimizer = make(params, lr=0.01, state_dtype=kind, **options)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
    return params, optimizer


@by_kind
@pytest.mark.parametrize("make", [ow.optim.AdamW, ow.optim.LAMB], ids=["AdamW", "LAMB"])
def test_every_device_stores_the_same(open_device, make, kind):
    first, optimizer = trained(make, open_device("cpu"), kind)
    second, other = trained(make, open_device("vulkan"), kind)
    tolerance = (
        0 if make is ow.optim.AdamW else 2e-3
    )  # sums of norms differ in the last digits, and rounding then flips
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=tolerance)
    if not tolerance:
        np.testing.assert_equal(optimizer.state_dict(), other.state_dict())


def nearest(numbers, values):
    return numbers[np.abs(values[..., None] - numbers).argmin(-1)]


def map_of(signed):
    """Dettmers et al. 2022: means of neighbours on a grid over each of seven decades, 0 and 1."""
    values = [0.0, 1.0]
    for decade in range(7):
        edges = np.linspace(0.1, 1, (1 if signed else 2) * 2**decade + 1)
        means = 10.0 ** (decade - 6) * (edges[:-1] + edges[1:]) / 2
        values += [*means, *(-means if signed else ())]
    return np.array(sorted(values))


def in_8_bits(values, signed):
    """Stored and read again, in float64."""
    blocks = np.pad(values, (0, -values.size % 256)).reshape(-1, 256)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    return (nearest(map_of(signed), blocks / largest) * largest).ravel()[: values.size]


def test_8_bit_adam_does_what_the_paper_says(device):
    (_, param, _), grads = problem()
    (_, ours, _), _ = trained(ow.optim.Adam, device, "8bit")
    param = param.astype(np.float64)
    first, second = np.zeros_like(param), np.zeros_like(param)
    for step, (_, grad, _) in enumerate(grads, 1):
        first = 0.9 * first + 0.1 * grad
        second = 0.999 * second + 0.001 * grad.astype(np.float64) ** 2
        corrected = np.sqrt(second / (1 - 0.999**step)) + 1e-8
        param = param - 0.01 * first / (1 - 0.9**step) / corrected
        first, second = in_8_bits(first, True), in_8_bits(second, False)
    off = np.abs(ours.numpy() - param)
    # Between two numbers that are nearly as near, the last digit decides; few elements come there.
    assert (off <= 5e-6 * np.abs(param).max()).mean() > 0.99
    assert off.max() < 2e-2


@by_kind
def test_saved_state_goes_on_bit_for_bit(device, kind):
    params, optimizer = trained(ow.optim.AdamW, device, kind)
    again = [ow.Parameter(param.numpy(), device=device) for param in params]
    loaded = ow.optim.AdamW(again, lr=0.01, state_dtype=kind)
    content = ow.dump_checkpoint(dict(zip("abc", params, strict=True)), optimizer)
    ow.load_checkpoint(content, dict(zip("abc", again, strict=True)), loaded)
    copied, another = copy.deepcopy((params, optimizer))
    for optimizer_ in (optimizer, loaded, another):
        optimizer_.step(grads=problem()[1][0])
    for a, b, c in zip(params, again, copied, strict=True):
        assert a.tolist() == b.tolist() == c.tolist()


@by_kind
def test_state_stays_when_a_group_is_added(device, kind):
    _, optimizer = trained(ow.optim.AdamW, device, kind)
    before = optimizer.state_dict()["state"]
    optimizer.add_param_group({"params": [ow.Parameter([1.0], device=device)]})
    after = optimizer.state_dict()["state"]
    np.testing.assert_equal(after, before)


def test_state_of_float32_is_taken_over(device):
    params, optimizer = trained(ow.optim.AdamW, device, "float32")
    again = [ow.Parameter(param.numpy(), device=device) for param in params]
    smaller = ow.optim.AdamW(again, lr=0.01, state_dtype="8bit")
    smaller.load_state_dict(optimizer.state_dict())
    optimizer.load_state_dict(smaller.state_dict())
    smaller.step(grads=problem()[1][0])
    optimizer.step(grads=problem()[1][0])
    for a, b in zip(params, again, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=3e-3)


@pytest.mark.parametrize(
    ("kind", "state", "moved"), [("float32", 8, 28), ("bfloat16", 4, 20), ("float16", 4, 20), ("8bit", 2.03, 16.1)]
)
def test_adamw_keeps_and_moves_as_many_bytes_as_it_must(kind, state, moved):
    cost = cost_of(ow.optim.AdamW, state_dtype=kind)
    assert cost.state == pytest.approx(state, abs=2e-3)
    assert cost.moved == pytest.approx(moved, abs=0.04)
    assert cost.dispatches == 2


def test_tensors_of_less_than_4096_elements_stay_float32(device):
    sizes = [4095, 4096]
    params = [ow.Parameter(ow.ones((size,), device=device)) for size in sizes]
    optimizer = ow.optim.AdamW(params, state_dtype="8bit")
    optimizer.step(grads=[np.ones(size, np.float32) for size in sizes])
    names = [sorted(entry) for entry in optimizer.state_dict()["state"].values()]
    assert names[0] == ["exp_avg", "exp_avg_sq", "step"]
    assert names[1] == ["exp_avg", "exp_avg_largest", "exp_avg_sq", "exp_avg_sq_largest", "step"]


@pytest.mark.parametrize(
    ("make", "kind", "error", "message"),
    [
        (ow.optim.Adam, "int4", ValueError, "state_dtype must be one of float32, float16, bfloat16, 8bit, not 'int4'"),
        (ow.optim.Adam, {"momentum": "8bit"}, ValueError, "Adam has exp_avg, exp_avg_sq"),
        (ow.optim.Adafactor, "8bit", UnsupportedError, "Adafactor keeps its state as float32"),
        (ow.optim.DoG, "8bit", UnsupportedError, "DoG keeps its state as float32"),
        (ow.optim.DAdaptSGD, {"s": "bfloat16"}, UnsupportedError, "DAdaptSGD keeps its state as float32"),
        (ow.optim.Prodigy, {"p0": "bfloat16"}, ValueError, "names 'p0'; Prodigy has exp_avg, exp_avg_sq"),
        (ow.optim.FTRL, {"linear": "8bit"}, ValueError, "names 'linear'; FTRL has accumulator"),
        (ow.optim.Adam, {"exp_avg_sq": "float16"}, ValueError, "float16 has no numbers below 6e-8.*bfloat16"),
        (ow.optim.Prodigy, {"exp_avg": "float16"}, ValueError, "float16 has no numbers below 6e-8.*bfloat16"),
    ],
)
def test_what_cannot_be_stored_so_is_refused(make, kind, error, message):
    with pytest.raises(error, match=message):
        make([ow.Parameter([[1.0]], device="cpu")], state_dtype=kind)


# What comes of it.


OWN_RULE = """
    struct Hyper { lr: f32 }
    struct State { z: f32, exp_avg_sq: f32 }
    struct Updated { param: f32, state: State }
    fn update(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
        let step = h.lr * grad + state.z * state.exp_avg_sq;
        return Updated(param - step, State(state.z + grad, 0.5 * state.exp_avg_sq + 1e-9));
    }
"""


def test_of_a_rule_of_ones_own_names_tell_nothing(device):
    w = ow.Parameter(np.zeros(5), device=device)
    kinds = {"z": "bfloat16", "exp_avg_sq": "float16"}
    optimizer = ow.optim.from_wgsl(OWN_RULE, lr=0.1)([w], lr=0.1, state_dtype=kinds)
    optimizer.step(grads=[np.full(5, 1.001)])
    state = optimizer.state_dict()["state"][0]
    assert (state["exp_avg_sq"] == 0).all()
    assert (np.abs(state["z"] - 1.001) > 5e-4).all()


@pytest.mark.parametrize("name", ["Adam", "LAMB", "MARS", "Adan", "AdaBelief", "RMSprop", "Adamax", "Adagrad"])
def test_steps_in_float16_are_as_long_where_gradients_are_small(device, name):
    values, grads = problem()

    def moved(kind):
        w = ow.Parameter(values[1], device=device)
        optimizer = getattr(ow.optim, name)([w], lr=0.01, state_dtype=kind)
        for _, grad, _ in grads:
            optimizer.step(grads=[1e-4 * grad])
        return w.numpy() - values[1]

    exact = moved("float32")
    assert np.linalg.norm(moved("float16") - exact) <= 0.01 * np.linalg.norm(exact)


EXACT = ["ASGD", "Adafactor", "DAdaptSGD", "DoG", "LDoG", "MetaSGD"]
"""All that they keep are positions and sums that these are made of, or it is not per element."""

NAMES = [
    name
    for name, make in all_optimizers().items()
    if hasattr(make, "rule") and make.takes_dense and make.needs in ("", ow.optim.Muon.needs)
    if not issubclass(make, Wrapper) and name not in EXACT
]
OPTIONS = {
    **{name: {} for name in ("DAdaptAdaGrad", "DAdaptAdam", "Prodigy", "SGDScheduleFree")},
    "AdamWScheduleFree": {"lr": 0.1},
    "FTRL": {"lr": 0.5},
    "Adadelta": {"lr": 10.0},
    "Adagrad": {"lr": 0.5},
    "GaLore": {"lr": 0.1},
    "LARS": {"lr": 5.0},
    "Muon": {"lr": 0.1, "weight_decay": 0.0},
    "SGD": {"lr": 0.5},
    "SM3": {"lr": 1.0},
    "SOAP": {"lr": 0.1},
    "Shampoo": {"lr": 0.15, "momentum": 0.9, "update_freq": 100},
}
"""Where not a learning rate of 0.05: that of the class, or these."""
POSITIONS = [*OPTIONS][:6]


def assert_comes_down(name, device, kind):
    rng = np.random.default_rng(0)
    shape = (64, 80)
    curvature = np.linspace(0.3, 1, 64 * 80, dtype=np.float32).reshape(shape)
    start, target = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    w = ow.Parameter(start, device=device)
    optimizer = getattr(ow.optim, name)([w], state_dtype=kind, **OPTIONS.get(name, {"lr": 0.05}))
    for _ in range(300):
        optimizer.step(grads=[curvature * (w.numpy() - target)])
    if hasattr(optimizer, "eval"):
        optimizer.eval()
    loss, before = ((curvature * (w_ - target) ** 2).mean() for w_ in (w.numpy(), start))
    assert loss <= 0.02 * before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "8bit"])
@pytest.mark.parametrize("name", NAMES)
def test_every_rule_lowers_a_quadratic(name, kind):
    assert_comes_down(name, "cpu", kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "8bit"])
@pytest.mark.parametrize("name", POSITIONS)
def test_positions_are_kept_exactly_on_the_gpu(open_device, name, kind):
    assert_comes_down(name, open_device("vulkan"), kind)


@pytest.mark.parametrize("name", EXACT)
def test_what_keeps_positions_alone_says_so(name):
    w = ow.Parameter(np.zeros((64, 80)), device="cpu")
    with pytest.raises(UnsupportedError, match="keeps its state as float32"):
        getattr(ow.optim, name)([w], state_dtype="bfloat16")


# Loaded from what was changed by hand.


@pytest.mark.parametrize("factor", [10.0, np.nan, np.inf])
def test_values_above_the_largest_that_is_given_are_refused(device, factor):
    _, optimizer = trained(ow.optim.AdamW, device, "8bit")
    before, changed = optimizer.state_dict(), optimizer.state_dict()
    changed["state"][1]["exp_avg"] = changed["state"][1]["exp_avg"] * factor
    with pytest.raises(CheckpointError, match="'exp_avg' has values above those of 'exp_avg_largest'"):
        optimizer.load_state_dict(changed)
    np.testing.assert_equal(optimizer.state_dict(), before)
    del changed["state"][1]["exp_avg_largest"]
    optimizer.load_state_dict(changed)
    again = optimizer.state_dict()["state"][1]["exp_avg"]
    if np.isfinite(changed["state"][1]["exp_avg"]).all():
        np.testing.assert_allclose(again, changed["state"][1]["exp_avg"], rtol=0, atol=1e-2 * np.abs(again).max())
    else:
        assert not np.isfinite(again).any()


@pytest.mark.parametrize("place", [0, 300, 511, 4999])
def test_a_nan_stays_one(device, place):
    _, optimizer = trained(ow.optim.AdamW, device, "8bit")
    changed = optimizer.state_dict()
    del changed["state"][1]["exp_avg_largest"]
    changed["state"][1]["exp_avg"][place] = np.nan
    optimizer.load_state_dict(changed)
    copied, actual = (
        optimizer.state_dict()["state"][1]["exp_avg"] for optimizer in (copy.deepcopy(optimizer), optimizer)
    )
    np.testing.assert_equal(copied, actual)
    np.testing.assert_array_equal(np.isnan(actual), np.arange(5000) // 256 == place // 256)


def test_what_float16_has_no_number_for_is_refused():
    params, optimizer = trained(ow.optim.SGD, "cpu", "float32", momentum=0.9)
    loaded = ow.optim.SGD(params, momentum=0.9, state_dtype="float16")
    changed = optimizer.state_dict()
    changed["state"][0]["momentum_buffer"] = np.full(3, 1e5, np.float32)
    with pytest.raises(CheckpointError, match="float16 has no numbers above 65,504; bfloat16 has"):
        loaded.load_state_dict(changed)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_state_of_torch_in_16_bits_is_widened(torch, dtype):
    weight = torch.nn.Parameter(torch.ones(4, 3, dtype=getattr(torch, dtype)))
    theirs = torch.optim.Adam([weight])
    weight.grad = torch.full_like(weight, 0.3)
    theirs.step()
    ours = ow.optim.Adam([ow.Parameter(np.ones((4, 3)), device="cpu")])
    ours.load_state_dict(theirs.state_dict())
    for name in ("exp_avg", "exp_avg_sq"):
        expected = theirs.state_dict()["state"][0][name].float().numpy()
        np.testing.assert_array_equal(ours.state_dict()["state"][0][name], expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "loss", "accuracy"),
    [
        ({"state_dtype": "8bit"}, 0.10, 0.01),
        ({"state_dtype": "bfloat16"}, 0.03, 0.005),
        ({"param_dtype": "bfloat16", "rounding": "stochastic"}, 0.03, 0.005),
        ({"param_dtype": "bfloat16", "rounding": "kahan"}, 0.03, 0.005),
        ({"param_dtype": "bfloat16", "rounding": "master"}, 0.03, 0.005),
    ],
    ids=["8bit", "bfloat16", "stochastic", "kahan", "master"],
)
def test_the_digits_are_learned_as_well(monkeypatch, options, loss, accuracy):
    recipe = OPTIMIZERS["adamw"]
    monkeypatch.setitem(OPTIMIZERS, "smaller", recipe._replace(options={**recipe.options, **options}))

    def results(optimizer):
        result = []
        for seed in range(3):
            training = DigitsTraining(Config(device="cpu", optimizer=optimizer, seed=seed, epochs=15))
            last = list(training.run())[-1]
            result.append((last.train_loss, last.test_accuracy))
        return np.mean(result, axis=0)

    exact, smaller = results("adamw"), results("smaller")
    assert abs(smaller[0] / exact[0] - 1) <= loss
    assert abs(smaller[1] - exact[1]) <= accuracy
