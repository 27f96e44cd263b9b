"""Parameters in bfloat16, updated in float32: a master copy, rounding at random, Kahan summation."""

import copy

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.cli.optimizers import all_optimizers, cost_of
from optirs_web.errors import UnsupportedError
from optirs_web.optim.wrapper import Wrapper

SHAPES = [(24, 32), (9,), (5000,)]
STEPS = 10
ROUNDINGS = ["master", "stochastic", "kahan"]

by_rounding = pytest.mark.parametrize("rounding", ROUNDINGS)


def bfloat16(values):
    """The nearest, ties away from zero."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)


def are_bfloat16(params):
    return all((param.numpy().view(np.uint32) & 0xFFFF == 0).all() for param in params)


def problem(seed=0, shapes=SHAPES, steps=STEPS):
    rng = np.random.default_rng(seed)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return values, [[rng.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(steps)]


def trained(make, device, values, grads, **options):
    params = [ow.Parameter(value, device=device) for value in values]
    optimizer = make(params, **options)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
    return params, optimizer


def bits(params):
    return [param.numpy().view(np.uint32).tolist() for param in params]


@by_rounding
def test_the_model_sees_numbers_of_bfloat16(device, rounding):
    values, grads = problem()
    params = [ow.Parameter(value, device=device) for value in values]
    optimizer = ow.optim.AdamW(params, lr=0.01, param_dtype="bfloat16", rounding=rounding)
    for param, value in zip(params, values, strict=True):
        np.testing.assert_array_equal(param.numpy(), bfloat16(value))
    for step_grads in grads:
        optimizer.step(grads=step_grads)
        assert are_bfloat16(params)


# Those that step float32 from gradients alone: if not for tensors of all shapes, then for matrices.
TAKING = [
    name
    for name, make in all_optimizers().items()
    if hasattr(make, "rule") and make.takes_dense and make.needs in ("", ow.optim.Muon.needs)
    if not issubclass(make, Wrapper)
]


@pytest.mark.parametrize("name", TAKING)
def test_the_master_is_trained_as_float32_bit_for_bit(open_device, name):
    """A rule's copy of the parameters is a copy of the rounded ones: they begin rounded."""
    make = all_optimizers()[name]
    values, grads = problem(shapes=SHAPES[: 1 if make.needs else 2], steps=6)
    values = [bfloat16(value) for value in values]
    for device in ("cpu", "vulkan"):
        exact, _ = trained(make, open_device(device), values, grads)
        params, optimizer = trained(make, open_device(device), values, grads, param_dtype="bfloat16")
        state = optimizer.state_dict()["state"]
        for number, (param, other) in enumerate(zip(params, exact, strict=True)):
            np.testing.assert_array_equal(state[number]["master"], other.numpy())
            np.testing.assert_array_equal(param.numpy(), bfloat16(other.numpy()))


def test_the_master_begins_with_all_digits(device):
    values, grads = problem()
    exact, _ = trained(ow.optim.AdamW, device, values, grads)
    params, _ = trained(ow.optim.AdamW, device, values, grads, param_dtype="bfloat16")
    for param, other in zip(params, exact, strict=True):
        np.testing.assert_array_equal(param.numpy(), bfloat16(other.numpy()))


@by_rounding
@pytest.mark.parametrize("state_dtype", ["float32", "8bit", {"exp_avg": "bfloat16"}], ids=["float32", "8bit", "mixed"])
def test_every_device_rounds_alike(open_device, rounding, state_dtype):
    options = {"param_dtype": "bfloat16", "rounding": rounding, "state_dtype": state_dtype, "lr": 0.01}
    first, optimizer = trained(ow.optim.AdamW, open_device("cpu"), *problem(), **options)
    second, other = trained(ow.optim.AdamW, open_device("vulkan"), *problem(), **options)
    assert bits(first) == bits(second)
    np.testing.assert_equal(optimizer.state_dict(), other.state_dict())


@by_rounding
@pytest.mark.parametrize("state_dtype", ["float32", "8bit"])
def test_every_target_does(numerics, request, rounding, state_dtype):
    """Where a * b + c is contracted, a last digit may decide to which side one of some thousands is rounded.

    XLA contracts, and so do NVIDIA's drivers for Vulkan and OpenCL.
    """
    contracts = request.node.callspec.params["numerics"] == "xla" or _contracts(
        lambda *problem, **options: numerics("transformed", [], "SGD", options, *problem)[-1]
    )
    values, grads = problem()
    options = {"param_dtype": "bfloat16", "rounding": rounding, "state_dtype": state_dtype, "lr": 0.01}
    params = [ow.Parameter(value, device="cpu") for value in values]
    optimizer = ow.optim.AdamW(params, **options)
    for step_grads, actual in zip(grads, numerics("transformed", [], "AdamW", options, values, grads), strict=True):
        optimizer.step(grads=step_grads)
        for param, other in zip(params, actual, strict=True):
            assert (param.numpy() != other).sum() <= contracts * param.size // 1000
            np.testing.assert_allclose(other, param.numpy(), rtol=contracts * 2.0**-7, atol=0)


def _contracts(last_step):
    """Return whether p - lr g is rounded once. The product is 1 + 2^-11 + 2^-24; its last bit is lost in float32.

    Args:
        last_step: makes the parameters, of their values and the gradients of each step, and options of SGD.
    """
    (param,) = last_step([np.float32([1 + 2**-11])], [[np.float32([1 + 2**-12])]], lr=1 + 2**-12)
    assert param[0] in (0.0, -(2.0**-24))
    return bool(param[0])


# What rounding does to small steps.

_SMALL = 2.0**-12  # a sixteenth of what separates 1 from its neighbour below in bfloat16


def summed(device, rounding, steps, size=4096):
    grads = [[np.full(size, -_SMALL, np.float32)]] * steps
    options = {} if rounding is None else {"param_dtype": "bfloat16", "rounding": rounding}
    (param,), _ = trained(ow.optim.SGD, device, [np.ones(size, np.float32)], grads, lr=1.0, **options)
    return param.numpy().astype(np.float64)


@pytest.mark.parametrize("rounding", ["master", "kahan"])
def test_small_steps_add_up(device, rounding):
    steps = 500
    exact = 1 + steps * _SMALL
    plain = 1.0  # rounded to the nearest after each step it never moves: the step is less than half of 2^-7
    assert bfloat16(np.float32(plain + _SMALL)) == plain
    spacing = 2.0**-7
    off = np.abs(summed(device, rounding, steps) - exact).max()
    assert off <= spacing / 2 * 1.01
    assert off < (exact - plain) / 25


def test_rounding_at_random_is_right_on_average(device):
    steps, size = 64, 65_536
    values = summed(device, "stochastic", steps, size)
    exact = 1 + steps * _SMALL  # 1.015625: two numbers above 1
    # Each step rounds up with probability 1/32: 64 steps are a binomial number of moves by 2^-7.
    deviation = 2.0**-7 * np.sqrt(steps / 32 * 31 / 32)
    assert abs(values.mean() - exact) < 4 * deviation / np.sqrt(size)
    assert values.std() == pytest.approx(deviation, rel=0.02)


def test_neighbours_and_steps_are_rounded_independently(device):
    up = summed(device, "stochastic", 1, 65_536) > 1
    later = summed(device, "stochastic", 2, 65_536) - 1 - up * 2.0**-7 > 0
    for one, other in ((up[1:], up[:-1]), (up[4:], up[:-4]), (up[256:], up[:-256]), (up, later)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.02


@pytest.mark.parametrize(("rounding", "moved"), [("master", 32), ("kahan", 32), ("stochastic", 28)])
def test_adamw_moves_as_many_bytes_as_it_must(rounding, moved):
    cost = cost_of(ow.optim.AdamW, param_dtype="bfloat16", rounding=rounding)
    assert cost.moved == pytest.approx(moved, abs=0.04)
    assert cost.dispatches == 2


# Together with everything else.


@by_rounding
def test_a_step_that_is_left_out_changes_nothing(device, rounding):
    values, grads = problem()
    options = {"param_dtype": "bfloat16", "rounding": rounding, "maximize": True, "skip_nonfinite": True}
    params, optimizer = trained(ow.optim.AdamW, device, values, grads, **options)
    before = bits(params), optimizer.state_dict()
    optimizer.step(grads=[np.full(shape, np.nan, np.float32) for shape in SHAPES])
    assert optimizer.skipped_steps == 1
    assert bits(params) == before[0]
    np.testing.assert_equal(optimizer.state_dict(), before[1])


@by_rounding
def test_saved_it_goes_on_bit_for_bit(device, rounding):
    options = {"lr": 0.01, "param_dtype": "bfloat16", "rounding": rounding}
    params, optimizer = trained(ow.optim.AdamW, device, *problem(), **options)
    again = [ow.Parameter(param.numpy(), device=device) for param in params]
    loaded = ow.optim.AdamW(again, **options)
    content = ow.dump_checkpoint(dict(zip("abc", params, strict=True)), optimizer)
    ow.load_checkpoint(content, dict(zip("abc", again, strict=True)), loaded)
    copied, another = copy.deepcopy((params, optimizer))
    for optimizer_ in (optimizer, loaded, another):
        for step_grads in problem(1)[1]:
            optimizer_.step(grads=step_grads)
    assert bits(params) == bits(again) == bits(copied)
    np.testing.assert_equal(optimizer.state_dict(), loaded.state_dict())


def test_a_copy_made_before_the_first_step_has_all_digits(device):
    values, grads = problem()
    params = [ow.Parameter(value, device=device) for value in values]
    optimizer = ow.optim.SGD(params, lr=0.1, param_dtype="bfloat16")
    copied, another = copy.deepcopy((params, optimizer))
    for optimizer_ in (optimizer, another):
        optimizer_.step(grads=grads[0])
    assert bits(params) == bits(copied)
    master = optimizer.state_dict()["state"][0]["master"]
    lr = np.float32(0.1)
    rounded_once = (values[0] - np.float64(lr) * grads[0][0]).astype(np.float32)
    contracts = _contracts(
        lambda *problem, lr: [param.numpy() for param in trained(ow.optim.SGD, device, *problem, lr=lr)[0]]
    )
    np.testing.assert_array_equal(master, rounded_once if contracts else values[0] - lr * grads[0][0])


@by_rounding
def test_groups_and_flags_may_change(device, rounding):
    values, grads = problem()
    params = [ow.Parameter(value, device=device) for value in values]
    options = {"lr": 0.1, "param_dtype": "bfloat16", "rounding": rounding}
    optimizer = ow.optim.SGD(params[:2], **options)
    optimizer.step(grads=grads[0][:2])
    before = optimizer.state_dict()["state"]
    optimizer.add_param_group({"params": params[2:], "lr": 0.01})
    optimizer.param_groups[0]["momentum"] = 0.9
    optimizer.step(grads=[None, None, grads[0][2]])
    after = optimizer.state_dict()["state"]
    for number in before:
        for name in set(before[number]) - {"step"}:
            np.testing.assert_array_equal(after[number][name], before[number][name])
    assert are_bfloat16(params)
    exact = values[2] - 0.01 * grads[0][2]  # rounded before the step, and after it
    assert (np.abs(params[2].numpy() - exact) <= 2**-7 * (np.abs(values[2]) + np.abs(exact))).all()


@pytest.mark.parametrize("momentum", [0.0, 1e-9])
def test_values_assigned_in_between_count(device, momentum):
    values, grads = problem()
    params, optimizer = trained(ow.optim.SGD, device, values, grads, lr=0.1, param_dtype="bfloat16")
    params[0].assign(values[0])
    optimizer.param_groups[0]["momentum"] = momentum  # another shader, and other memory
    optimizer.step(grads=grads[0])
    exact = values[0] - np.float32(0.1) * grads[0][0]
    np.testing.assert_array_equal(params[0].numpy(), bfloat16(exact))


@pytest.mark.parametrize("rounding", ["master", "kahan"])
@pytest.mark.parametrize("value", [0.0, -0.0, 0.001, 2.0**-20, 1.0, 3e38])
def test_what_was_cut_off_of_others_is_forgotten(device, rounding, value):
    before, grad = np.linspace(900, 1100, 64), np.linspace(-1.9, 1.9, 64)
    (param,), optimizer = trained(
        ow.optim.SGD, device, [before], [[grad]], lr=1.0, param_dtype="bfloat16", rounding=rounding
    )
    param.assign(np.full(64, value, np.float32))
    for _ in range(2):
        optimizer.step(grads=[np.zeros(64)])
        np.testing.assert_array_equal(param.numpy(), bfloat16(np.full(64, value)))
    master = optimizer.state_dict()["state"][0].get("master", param.numpy())
    np.testing.assert_allclose(master, np.full(64, value), rtol=2**-8, atol=1e-40)


@pytest.mark.parametrize("rounding", ["master", "kahan"])
@pytest.mark.parametrize("name", ["non_negative", "box", "l2_ball"])
def test_projections_count(device, rounding, name):
    project = getattr(ow.optim.projections, name)(*{"non_negative": (), "box": (-0.25, 0.25), "l2_ball": (1.0,)}[name])
    grads = [[value] for value in np.random.default_rng(0).standard_normal((6, 64))]
    options = {"lr": 0.3, "param_dtype": "bfloat16", "rounding": rounding, "transforms": [project]}
    (param,), optimizer = trained(ow.optim.SGD, device, [np.linspace(-1, 1, 64)], grads, **options)
    values = param.numpy()
    assert np.isfinite(optimizer.state_dict()["state"][0].get("master", values)).all()
    project.apply([param])
    np.testing.assert_allclose(param.numpy(), values, rtol=2**-8)
    assert (values.view(np.uint32) & 0xFFFF == 0).all()


@by_rounding
def test_a_compiled_step_does_the_same(device, rounding):
    values, grads = problem()
    options = {"lr": 0.01, "param_dtype": "bfloat16", "rounding": rounding}
    expected, _ = trained(ow.optim.AdamW, device, values, grads, **options)
    params = [ow.Parameter(value, device=device) for value in values]
    optimizer = ow.optim.AdamW(params, **options)

    @ow.compile
    def step(*given):
        optimizer.step(grads=given)

    for step_grads in grads:
        step(*(ow.tensor(grad, device=device) for grad in step_grads))
    assert bits(params) == bits(expected)


@by_rounding
def test_transforms_projections_and_a_rule_of_ones_own(device, rounding):
    rule = """
        struct Hyper { lr: f32 }
        struct Updated { param: f32 }
        fn update(param: f32, grad: f32, h: Hyper) -> Updated { return Updated(param - h.lr * grad); }
    """
    transforms = [
        ow.optim.transforms.add_decayed_weights(0.1),
        ow.optim.transforms.clip_by_global_norm(1.0),
        ow.optim.projections.box(-0.5, 0.5),
    ]
    make = ow.optim.from_wgsl(rule, lr=0.1)
    options = {"lr": 0.1, "param_dtype": "bfloat16", "rounding": rounding, "transforms": transforms}
    params, _ = trained(make, device, *problem(), **options)
    assert are_bfloat16(params)
    assert all(np.abs(param.numpy()).max() <= 0.5 for param in params)


@pytest.mark.parametrize(
    ("make", "options", "error", "message"),
    [
        (
            ow.optim.Adam,
            {"param_dtype": "float16"},
            ValueError,
            "param_dtype must be float32 or bfloat16, not 'float16'",
        ),
        (ow.optim.Adam, {"rounding": "up"}, ValueError, "rounding must be one of master, stochastic, kahan, not 'up'"),
        (ow.optim.Adam, {"rounding": "kahan"}, ValueError, "rounding='kahan' needs param_dtype='bfloat16'"),
        (ow.optim.Adam, {"rounding": "master"}, ValueError, "rounding='master' needs param_dtype='bfloat16'"),
        (ow.optim.SparseAdam, {"param_dtype": "bfloat16"}, UnsupportedError, "keeps its parameters as float32"),
        (ow.optim.Ranger, {"param_dtype": "bfloat16"}, UnsupportedError, "Ranger moves parameters in float32"),
    ],
)
def test_what_cannot_be_kept_so_is_refused(make, options, error, message):
    with pytest.raises(error, match=message):
        make([ow.Parameter([[1.0]], device="cpu")], **options)


def test_rows_are_refused():
    w = ow.Parameter([[1.0], [2.0]], device="cpu")
    optimizer = ow.optim.SGD([w], param_dtype="bfloat16")
    with pytest.raises(UnsupportedError, match="rounded in whole tensors, not in rows"):
        optimizer.step(grads=[ow.SparseRows([1], [[1.0]], w.shape, device="cpu")])
