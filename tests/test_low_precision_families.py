"""State in fewer bits of rules with rows and columns, of rules with matrices, and of sparse rows: costs and errors."""

import copy

import numpy as np
import pytest
from optimizer_cases import CONVERGENCE
from optimizer_problems import make_problem, relative_error
from test_optimizer_convergence import PROBLEMS

import optirs_web as ow
from optirs_web.cli.optimizers import cost_of
from optirs_web.errors import UnsupportedError

SHAPES = ((3,), (9, 7), (5, 2, 13), (64, 65))
"""Some have odd sizes, one is large enough for 8 bits, and ends within a block."""

OPTIMIZERS = {
    "CAME": {"lr": 0.01, "betas": (0.9, 0.99, 0.99)},
    "SM3": {"lr": 0.1},
    "Muon": {"lr": 0.02},
    "Shampoo": {"lr": 0.1, "momentum": 0.9},
    "SOAP": {"lr": 0.01, "precondition_frequency": 4},
    "GaLore": {"lr": 0.01, "rank": 16, "update_proj_gap": 4},
    "APOLLO": {"lr": 0.01, "rank": 16},
}
ROWS = {"SparseAdam": {"lr": 0.1}, "Adagrad": {"lr": 0.1, "initial_accumulator_value": 0.5}}
TABLES = ((30, 7), (25,), (9, 2, 3))
"""Rows of odd length share words of 32 bits."""

# Half a spacing, as a part of a number; bfloat16 is rounded up or down at random, by a spacing. Of 8 bits half the
# widest gap between two numbers of the map, as a part of the largest magnitude of a block: a share of the upper decade.
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-7, "8bit": 0.45 / 64}
# The host computes the numbers of the 8-bit map in float64, devices in float32.
LAST_DIGITS = {"float16": 0.0, "bfloat16": 0.0, "8bit": 5e-6}
SMALLEST = {"float16": 2.0**-25, "bfloat16": 0.0, "8bit": 0.0}
"""Half the spacing of subnormal numbers."""

families = pytest.mark.parametrize("name", OPTIMIZERS)
by_kind = pytest.mark.parametrize("kind", ROUNDING)


def fits(name, shape):
    return name != "Muon" or len(shape) == 2


def problem(name, steps):
    """Parameters, and for each step gradients; of rows as pairs."""
    if name not in ROWS:
        return make_problem([shape for shape in SHAPES if fits(name, shape)], steps)
    rng = np.random.default_rng(0)
    params, _ = make_problem(TABLES, 0)
    rows = [[rng.integers(-1, shape[0], 12).astype(np.int32) for shape in TABLES] for _ in range(steps)]
    return params, [
        [
            (rows, rng.standard_normal((12, *shape[1:])).astype(np.float32))
            for rows, shape in zip(ones, TABLES, strict=True)
        ]
        for ones in rows
    ]


def made(name, values, device, kind="float32", **options):
    params = [ow.Parameter(value, device=device) for value in values]
    defaults = {**OPTIMIZERS, **ROWS}[name]
    return params, getattr(ow.optim, name)(params, **{**defaults, **options}, state_dtype=kind)


def step(optimizer, params, grads):
    optimizer.step(
        grads=[
            ow.SparseRows(*grad, param.shape, device=param.device) if isinstance(grad, tuple) else grad
            for grad, param in zip(grads, params, strict=True)
        ]
    )


def trained(name, device, kind="float32", steps=6, **options):
    values, grads = problem(name, steps)
    params, optimizer = made(name, values, device, kind, **options)
    for step_grads in grads:
        step(optimizer, params, step_grads)
    return params, optimizer


def side_by_side(name, device, kind, steps):
    """Return two optimizers with the same state after some steps: one in fewer bits, one in float32."""
    params, optimizer = trained(name, device, kind, steps=steps)
    result = [made(name, [param.numpy() for param in params], device, kind_) for kind_ in (kind, "float32")]
    for _, optimizer_ in result:
        optimizer_.load_state_dict(optimizer.state_dict())
    return result


def slots_of(optimizer):
    """The state that may be stored in fewer bits."""
    return optimizer._built.in_fewer_bits(optimizer.rule.state)


# What it costs.


@families
@pytest.mark.parametrize(("kind", "nbytes"), [("float16", 2), ("bfloat16", 2), ("8bit", 1 + 4 / 256)])
def test_state_per_element_has_as_many_bytes_as_it_must(name, kind, nbytes):
    make, options = getattr(ow.optim, name), OPTIMIZERS[name]
    counts = {"CAME": 1, "SM3": 1, "Muon": 1, "Shampoo": 1, "SOAP": 2, "GaLore": 2 * 16 / 256, "APOLLO": 2 * 16 / 256}
    saved = cost_of(make, **options).state - cost_of(make, **options, state_dtype=kind).state
    assert saved == pytest.approx(counts[name] * (4 - nbytes))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_averages_of_rows_have_half_the_bytes(kind):
    assert cost_of(ow.optim.SparseAdam, state_dtype=kind).state == 4
    assert cost_of(ow.optim.Adagrad, state_dtype=kind).state == 2


# What is computed.


def stored_as(kind, slot):
    """Where float16 is asked for, squares are bfloat16."""
    return "bfloat16" if kind == "float16" and slot in ("exp_avg_sq", "sum") else kind


def assert_is_rounded(kind, got, slot, exact):
    """The slot of a state is this, rounded once."""
    off = np.abs(got[slot] - exact)
    if f"{slot}_largest" in got:
        blocks = np.pad(np.abs(exact).ravel(), (0, -exact.size % 256)).reshape(-1, 256).max(1)
        np.testing.assert_allclose(got[f"{slot}_largest"], blocks, rtol=5e-6)
        most = np.repeat(blocks, 256)[: exact.size].reshape(exact.shape)
        assert (off <= most * ROUNDING["8bit"] + most * 5e-6).all()
    elif kind == "8bit":  # a small tensor
        assert relative_error(got[slot], exact) <= LAST_DIGITS[kind]
    else:
        assert (off <= np.abs(exact) * ROUNDING[kind] + SMALLEST[kind]).all()


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in (*OPTIMIZERS, *ROWS) for kind in ROUNDING if name in OPTIMIZERS or kind != "8bit"],
)
def test_a_step_is_that_of_float32_and_its_state_is_rounded_once(device, name, kind):
    (params, smaller), (others, exact) = side_by_side(name, device, kind, 6)
    grads = problem(name, 7)[1][6]
    step(smaller, params, grads)
    step(exact, others, grads)
    for param, other in zip(params, others, strict=True):
        assert relative_error(param.numpy(), other.numpy()) <= LAST_DIGITS[kind]
    got, want = smaller.state_dict()["state"], exact.state_dict()["state"]
    in_fewer_bits = slots_of(smaller)
    rounded = 0
    for number, entry in want.items():
        assert set(entry) - set(in_fewer_bits) == set(got[number]) - {
            name_ for slot in in_fewer_bits for name_ in (slot, f"{slot}_largest")
        }
        for slot, value in entry.items():
            if slot in in_fewer_bits:
                assert_is_rounded(stored_as(kind, slot), got[number], slot, value)
                rounded += (got[number][slot] != value).any()
            else:
                assert relative_error(got[number][slot], value) <= LAST_DIGITS[kind]
    assert rounded >= (1 if kind == "8bit" else 2)


@by_kind
def test_an_average_is_turned_into_a_new_basis_up_to_rounding(device, kind):
    """It is rounded before, and after: a turn keeps the norm of what that changed."""
    (params, smaller), (others, exact) = side_by_side("SOAP", device, kind, 4)
    grads = problem("SOAP", 5)[1][4]  # the basis is brought up to date in this step
    before = exact.state_dict()["state"]
    step(smaller, params, grads)
    step(exact, others, grads)
    got, want = smaller.state_dict()["state"], exact.state_dict()["state"]
    assert (want[3]["Q_L"] != before[3]["Q_L"]).any()
    for number in (1, 3) if kind != "8bit" else (3,):
        exp_avg = want[number]["exp_avg"]
        off = np.linalg.norm(got[number]["exp_avg"] - exp_avg)
        parts = 2 if kind != "8bit" else 2 * np.sqrt(exp_avg.size) * np.abs(exp_avg).max() / np.linalg.norm(exp_avg)
        assert 0 < off <= parts * ROUNDING[kind] * np.linalg.norm(exp_avg) * 1.1


@pytest.mark.slow
@by_kind
@pytest.mark.parametrize("name", ["SM3", "Shampoo"])
def test_a_run_is_off_by_what_rounding_adds_up_to(device, name, kind):
    """The bound is of rules whose steps are linear in the momentum, in which the error of each rounding decays."""
    steps, momentum = 10, 0.9
    params, _ = trained(name, device, kind, steps=steps)
    exact, other = trained(name, device, steps=steps)
    lr = OPTIMIZERS[name]["lr"]
    for number, (param, another) in enumerate(zip(params, exact, strict=True)):
        largest = 2 * np.abs(other.state_dict()["state"][number]["momentum_buffer"]).max()  # of any step
        bound = lr * steps * ROUNDING[kind] * largest / (1 - momentum)
        assert np.abs(param.numpy() - another.numpy()).max() <= bound


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_rows_are_stored_alike_on_every_device(open_device, name, kind):
    """Neighbours that share a word are stored by different invocations at once."""
    (first, optimizer), (second, other) = (
        trained(name, open_device(device), kind, steps=20) for device in ("cpu", "vulkan")
    )
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=2e-6)
    for entry, another in zip(
        optimizer.state_dict()["state"].values(), other.state_dict()["state"].values(), strict=True
    ):
        for slot in slots_of(optimizer):
            spacing = 2 * ROUNDING[stored_as(kind, slot)] * np.abs(entry[slot])  # a last digit may decide to which side
            assert (np.abs(entry[slot] - another[slot]) <= spacing).all()


# What it is good for.


BFLOAT16_ROWS = [case for case in CONVERGENCE if case.optimizer in OPTIMIZERS and case.optimizer != "Shampoo"]


@pytest.mark.parametrize("row", BFLOAT16_ROWS, ids=[f"{row.optimizer}-{row.problem}" for row in BFLOAT16_ROWS])
def test_lowers_its_problem_by_the_stated_factor_with_state_in_bfloat16(row):
    device = ow.device("cpu")
    params, loss_of = PROBLEMS[row.problem](device)
    optimizer = getattr(ow.optim, row.optimizer)(params, **row.options, state_dtype="bfloat16")

    def train_step():
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()

    before = loss_of().item()
    compiled = ow.compile(train_step, device=device)
    for _ in range(row.steps):
        compiled()
    assert loss_of().item() <= before / row.factor


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_lowers_a_quadratic_of_which_each_step_sees_some_rows(kind):
    rng = np.random.default_rng(0)
    target = rng.standard_normal((40, 8)).astype(np.float32)
    param = ow.Parameter(np.zeros_like(target), device="cpu")
    optimizer = ow.optim.SparseAdam([param], lr=0.05, state_dtype=kind)
    for _ in range(300):
        rows = rng.integers(0, 40, 16).astype(np.int32)
        optimizer.step(grads=[ow.SparseRows(rows, (param.numpy() - target)[rows], param.shape, device="cpu")])
    assert ((param.numpy() - target) ** 2).sum() < (target**2).sum() / 1000


# Saved, copied, recorded.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, kind) for name in OPTIMIZERS for kind in ("bfloat16", "8bit")), *((name, "float16") for name in ROWS)],
)
def test_saved_state_goes_on_bit_for_bit(device, name, kind):
    params, optimizer = trained(name, device, kind)
    again, loaded = made(name, [param.numpy() for param in params], device, kind)
    names = [str(number) for number in range(len(params))]
    content = ow.dump_checkpoint(dict(zip(names, params, strict=True)), optimizer)
    ow.load_checkpoint(content, dict(zip(names, again, strict=True)), loaded)
    copied, another = copy.deepcopy((params, optimizer))
    optimizer.add_param_group({"params": [ow.Parameter(np.ones((3, 5), np.float32), device=device)]})
    grads = problem(name, 7)[1][6]
    optimizer_grads = [
        *(
            grad if not isinstance(grad, tuple) else ow.SparseRows(*grad, param.shape, device=device)
            for grad, param in zip(grads, params, strict=True)
        ),
        None,
    ]
    optimizer.step(grads=optimizer_grads)
    step(loaded, again, grads)
    step(another, copied, grads)
    for a, b, c in zip(params, again, copied, strict=True):
        assert b.tolist() == c.tolist()
        # Means of rows are no part of CAME's state, and computed anew.
        assert a.tolist() == b.tolist() or (name == "CAME" and relative_error(b.numpy(), a.numpy()) <= 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, kind) for name in OPTIMIZERS for kind in ("bfloat16", "8bit")), *((name, "bfloat16") for name in ROWS)],
)
def test_a_recorded_step_stores_the_same(device, name, kind):
    values, grads = problem(name, 6)
    params, optimizer = made(name, values, device, kind)
    others, other = made(name, values, device, kind)
    if name in ROWS:

        def train_step(*given):
            optimizer.step(
                grads=[
                    ow.SparseRows(*pair, param.shape)
                    for pair, param in zip(zip(given[::2], given[1::2], strict=True), params, strict=True)
                ]
            )
    else:

        def train_step(*given):
            optimizer.step(grads=given)

    recorded = ow.compile(train_step, device=device)
    for step_grads in grads:
        before = device.stats.copy()
        recorded(*(part for grad in step_grads for part in (grad if isinstance(grad, tuple) else [grad])))
        cost = device.stats - before
        step(other, others, step_grads)
    assert (cost.replays, cost.bytes_down) == (1, 0)
    for param, another in zip(params, others, strict=True):
        assert param.tolist() == another.tolist()


@pytest.mark.parametrize(("name", "kind"), [("CAME", "8bit"), ("SOAP", "bfloat16"), ("GaLore", "8bit")])
def test_every_device_gets_as_near_to_float32(numerics, name, kind):
    """Within what the roundings of 8 steps add up to, as parts of the way; the browser is among them."""
    params, grads = make_problem([(9,), (64, 65)], 8)
    options = OPTIMIZERS[name]
    smaller, exact = (
        numerics("transformed", [], name, {**options, "state_dtype": its}, params, grads)[-1]
        for its in (kind, "float32")
    )
    moved = max(np.abs(np.asarray(values) - before).max() for values, before in zip(exact, params, strict=True))
    for values, another in zip(smaller, exact, strict=True):
        assert np.abs(np.asarray(values) - np.asarray(another)).max() <= 8 * ROUNDING[kind] * moved


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_rows_get_as_near_to_float32(numerics, kind):
    params, grads = problem("SparseAdam", 8)
    smaller, exact = (
        numerics("sparse_run", "SparseAdam", {"lr": 0.1, "state_dtype": its}, params, grads)
        for its in (kind, "float32")
    )
    moved = max(np.abs(np.asarray(values) - before).max() for values, before in zip(exact, params, strict=True))
    for values, another in zip(smaller, exact, strict=True):
        assert 0 < np.abs(np.asarray(values) - np.asarray(another)).max() <= 8 * ROUNDING[kind] * moved


# What is refused.


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
def test_rows_are_not_stored_in_8_bits(device, name):
    shape = (5000, 2)
    param = ow.Parameter(np.ones(shape, np.float32), device=device)
    options = {"SGD": {"momentum": 0.9}}.get(name, {})
    optimizer = getattr(ow.optim, name)([param], **options, state_dtype="8bit")
    grad = ow.SparseRows([0], [[1.0, 1.0]], shape, device=device)
    if name == "SGD":  # with momentum it changes all rows
        optimizer.step(grads=[grad])
        assert param.numpy()[0, 0] < 1
    else:
        with pytest.raises(
            UnsupportedError, match="stored in blocks of 256 with a scale for each, of which rows change parts"
        ):
            optimizer.step(grads=[grad])
        assert (param.numpy() == 1).all()


@pytest.mark.parametrize(
    ("name", "kind", "error", "message"),
    [
        ("Adafactor", "bfloat16", UnsupportedError, "Adafactor keeps its state as float32"),
        ("Muon", {"direction": "bfloat16"}, ValueError, "Muon has momentum_buffer$"),
        ("CAME", {"exp_avg_sq_row": "bfloat16"}, ValueError, "CAME has exp_avg$"),
        ("SOAP", {"Q_L": "bfloat16"}, ValueError, "SOAP has exp_avg, exp_avg_sq$"),
        ("GaLore", {"projector": "float16"}, ValueError, "GaLore has exp_avg, exp_avg_sq$"),
    ],
)
def test_what_is_kept_in_float32_is_named(name, kind, error, message):
    with pytest.raises(error, match=message):
        getattr(ow.optim, name)([ow.Parameter([[1.0]], device="cpu")], state_dtype=kind)
