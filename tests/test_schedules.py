"""Schedules: torch's and optax's numbers, on the host and on the device; and what they refuse."""

import math

import numpy as np
import pytest
from recorded import SCHEDULE_STEPS as STEPS, SCHEDULES, optaxs_schedule, torchs_schedule
from schedule_cases import OPTAX_NAMES, OPTIRS, schedule
from schedule_problems import on_device, ours, torchs, values_of

import optirs_web as ow
from optirs_web.errors import UnsupportedError
from optirs_web.optim import lr_scheduler, schedules

HOST, DEVICE = 1e-6, 2e-6  # of each value


@pytest.mark.parametrize("case", SCHEDULES.values(), ids=SCHEDULES)
def test_torchs_numbers(numerics, torch, case):
    got = numerics("schedule", case.name, case.optimizer, STEPS)
    assert got["on_device"] == case.on_device
    want = torchs_schedule(case)[: len(got["host"])]
    np.testing.assert_allclose(got["host"], want, rtol=HOST, atol=1e-18)
    np.testing.assert_allclose(got["device"], got["host"], rtol=DEVICE, atol=1e-37)


@pytest.mark.parametrize("name", OPTAX_NAMES)
def test_optaxs_numbers(numerics, optax, name):
    got = numerics("schedule", name, "SGD", STEPS)
    np.testing.assert_allclose(got["host"][0], optaxs_schedule(name), rtol=HOST, atol=1e-18)
    np.testing.assert_allclose(got["device"], got["host"], rtol=DEVICE, atol=1e-37)
    np.testing.assert_allclose(schedule(name, schedules).values(1 + STEPS), got["host"][0], rtol=1e-14)


@pytest.mark.parametrize("name", OPTIRS)
def test_the_host_and_the_device_agree(numerics, name):
    got = numerics("schedule", name, "SGD", STEPS)
    assert got["on_device"]
    np.testing.assert_allclose(got["device"], got["host"], rtol=DEVICE, atol=1e-37)


def test_warm_ups_begin_and_end_where_they_should():
    after = schedules.constant_schedule(0.5)
    for curve, first, middle in (("linear", 0.1, 0.3), ("cosine", 0.1, 0.3), ("exponential", 0.1, math.sqrt(0.05))):
        values = schedules.warmup(after, 10, curve, 0.1).values(12)
        np.testing.assert_allclose([values[0], values[5], *values[10:]], [first, middle, 0.5, 0.5], rtol=1e-6)
    assert schedules.warmup(after, 2, "constant", 0.1).values(4) == [0.1, 0.1, 0.5, 0.5]
    with pytest.raises(ValueError, match="not from 0"):
        schedules.warmup(after, 2, "exponential")


def test_noise_is_of_its_distribution_and_not_below_its_floor():
    flat = schedules.constant_schedule(1.0)
    uniform = np.array(schedules.noisy(flat, "uniform", -0.5, 0.5).values(4000)) - 1
    assert uniform.min() < -0.49
    assert uniform.max() > 0.49
    assert abs(uniform.mean()) < 0.02
    normal = np.array(schedules.noisy(flat, "gaussian", 0.1, 0.2).values(4000)) - 1
    assert abs(normal.mean() - 0.1) < 0.01
    assert abs(normal.std() - 0.2) < 0.01
    decaying = np.abs(np.array(schedules.noisy(flat, "decaying", 0.5, 0.0, steps=100).values(200)) - 1)
    assert decaying[:20].max() > 0.3
    assert decaying[80:100].max() < 0.1
    assert not decaying[100:].any()
    sine = np.array(schedules.noisy(flat, "cyclical", 0.5, steps=8).values(8)) - 1
    np.testing.assert_allclose(sine, 0.5 * np.sin(2 * np.pi * np.arange(8) / 8), atol=1e-6)
    assert min(schedules.noisy(flat, "gaussian", 0.0, 5.0, lowest=0.25).values(100)) == 0.25
    assert schedules.noisy(flat, "uniform", 0, 1, seed=1).values(9) != schedules.noisy(flat, "uniform", 0, 1).values(9)


def test_curricula_blend_or_jump_or_wait(device):
    stages = [(0.1, 10), (0.3, 10)]
    assert schedules.curriculum(stages).values(12)[8:] == [0.1, 0.1, 0.3, 0.3]
    smooth = schedules.curriculum(stages, "smooth", 4).values(16)
    np.testing.assert_allclose(smooth[9:15], [0.1, 0.1, 0.1292893, 0.2, 0.2707107, 0.3], rtol=1e-6)
    optimizer = ours(device)
    by_hand = lr_scheduler.CurriculumLR(optimizer, [0.25, 0.5])
    got = []
    for number in range(4):
        got.append(on_device(optimizer))
        if number == 1:
            by_hand.advance()
        by_hand.step()
    assert got == [0.25, 0.25, 0.5, 0.5]


def test_layers_have_rates_of_their_own(device):
    optimizer = ours(device, lrs=(1.0, 1.0, 1.0))
    factors = schedules.layerwise_decay(3, 0.5)
    scheduler = lr_scheduler.ScheduleLR(optimizer, schedules.linear_schedule(0.8, 0.0, 4), factors=factors)
    scheduler.step()
    np.testing.assert_allclose(scheduler.get_last_lr(), [0.15, 0.3, 0.6], rtol=1e-6)
    np.testing.assert_allclose([on_device(optimizer, group=g) for g in range(3)], [0.15, 0.3, 0.6], rtol=DEVICE)
    relative = ours(device, lrs=(1.0, 1.0, 1.0))
    two = lr_scheduler.ScheduleLR(relative, schedules.linear_schedule(1.0, 0.0, 4), relative=True, factors=factors)
    two.step()
    np.testing.assert_allclose(values_of(relative, "lr"), [0.1875, 0.375, 0.75], rtol=1e-6)


def test_values_and_plots(device, tmp_path):
    optimizer = ours(device)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 10)
    np.testing.assert_allclose(scheduler.values(11)[::5], [0.5, 0.25, 0.0], atol=1e-7)
    assert lr_scheduler.LambdaLR(ours(device), lambda e: e).values(3, group=1) == [0.0, 1.0, 2.0]
    figure = scheduler.plot(11, tmp_path / "lr.png")
    assert (tmp_path / "lr.png").stat().st_size > 1000
    assert figure.axes[0].get_ylabel() == "lr"
    schedules.constant_schedule(1.0).plot(3)


def test_more_constants_than_a_kernel_can_have_are_left_to_the_host(device):
    optimizer = ours(device)
    halvings = schedules.piecewise_constant_schedule(1.0, dict.fromkeys(range(1, 1000), 0.5))
    one = lr_scheduler.ScheduleLR(optimizer, halvings)
    assert not one.is_on_device
    for _ in range(3):
        one.step()
    assert on_device(optimizer) == one.get_last_lr()[0] == halvings(3) == 0.125


def test_a_scheduler_of_ones_own(device):
    class Halving(lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base / 2**self.last_epoch for base in self.base_lrs]

    optimizer = ours(device)
    scheduler = Halving(optimizer)
    step = ow.compile(lambda: scheduler.step(), device=device)
    for _ in range(3):
        step()
    assert scheduler.get_last_lr() == values_of(optimizer, "lr") == [0.5 / 8, 1.0 / 8]
    with pytest.raises(UnsupportedError, match="no formula: step it, and read"):
        scheduler.values(3)


# Refusals, in torch's words.


@pytest.mark.parametrize(
    "make",
    [
        lambda m, o: m.LambdaLR(o, [lambda e: e]),
        lambda m, o: m.MultiplicativeLR(o, 3),
        lambda m, o: m.ConstantLR(o, 2.0),
        lambda m, o: m.LinearLR(o, 0.0),
        lambda m, o: m.LinearLR(o, 0.5, 1.5),
        lambda m, o: m.CosineAnnealingWarmRestarts(o, 0),
        lambda m, o: m.CosineAnnealingWarmRestarts(o, 1, 0),
        lambda m, o: m.CosineAnnealingWarmRestarts(o, 1, 1, "x"),
        lambda m, o: m.CyclicLR(o, [0.1], 0.2),
        lambda m, o: m.CyclicLR(o, 0.1, 0.2, mode="x"),
        lambda m, o: m.OneCycleLR(o, 0.1),
        lambda m, o: m.OneCycleLR(o, 0.1, 0),
        lambda m, o: m.OneCycleLR(o, 0.1, epochs=0, steps_per_epoch=3),
        lambda m, o: m.OneCycleLR(o, 0.1, epochs=3, steps_per_epoch=0),
        lambda m, o: m.OneCycleLR(o, 0.1, 10, pct_start=1.5),
        lambda m, o: m.OneCycleLR(o, 0.1, 10, anneal_strategy="x"),
        lambda m, o: [optimizer.step() for optimizer in [m.OneCycleLR(o, 0.1, 3)] for _ in range(4)],
        lambda m, o: m.ReduceLROnPlateau(o, factor=1.0),
        lambda m, o: m.ReduceLROnPlateau(o, mode="x"),
        lambda m, o: m.ReduceLROnPlateau(o, threshold_mode="x"),
        lambda m, o: m.ReduceLROnPlateau(o, min_lr=[0.1]),
        lambda m, o: m.SequentialLR(o, [], []),
        lambda m, o: m.SequentialLR(o, [m.StepLR(o, 3)], [3]),
        lambda m, o: m.SequentialLR(o, [m.StepLR(o, 3), m.ReduceLROnPlateau(o)], [3]),
        lambda m, o: m.ChainedScheduler([]),
        lambda m, o: m.ChainedScheduler([m.ReduceLROnPlateau(o)]),
        lambda m, o: m.StepLR(o.param_groups, 3),
        lambda m, o: m.OneCycleLR(type(o).__mro__, 0.1, 3),
    ],
)
def test_refusals_are_torchs(torch, make):
    messages = []
    for module, optimizer in ((torch.optim.lr_scheduler, torchs(torch, "SGD")), (lr_scheduler, ours("cpu"))):
        with pytest.raises((ValueError, TypeError)) as caught:
            make(module, optimizer)
        messages.append((caught.type, " ".join(str(caught.value).split())))
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda m, o: m.StepLR(o, 0).step(),
        lambda m, o: m.CosineAnnealingLR(o, 0).step(),
        lambda m, o: m.OneCycleLR(o, 1.0, 20, pct_start=0.05),
        lambda m, o: m.CyclicLR(o, 0.1, 0.2, 0),
    ],
)
def test_steps_that_would_divide_by_0_do_so_as_in_torch(torch, make):
    for module, optimizer in ((torch.optim.lr_scheduler, torchs(torch, "SGD")), (lr_scheduler, ours("cpu"))):
        with pytest.raises(ZeroDivisionError):
            make(module, optimizer)


NUMBERS = {
    "StepLR": ({"step_size": 3}, ("step_size", "gamma")),
    "MultiStepLR": ({"milestones": [3]}, ("milestones", "gamma")),
    "ConstantLR": ({}, ("factor", "total_iters")),
    "LinearLR": ({}, ("start_factor", "end_factor", "total_iters")),
    "ExponentialLR": ({"gamma": 0.5}, ("gamma",)),
    "PolynomialLR": ({}, ("total_iters", "power")),
    "CosineAnnealingLR": ({"T_max": 3}, ("T_max", "eta_min")),
    "CosineAnnealingWarmRestarts": ({"T_0": 3}, ("T_0", "T_mult", "eta_min")),
    "CurriculumLR": ({"stages": [0.1]}, ("stages",)),
    "CyclicLR": (
        {"base_lr": 0.1, "max_lr": 0.2, "cycle_momentum": False},
        ("base_lr", "max_lr", "step_size_up", "step_size_down", "gamma", "base_momentum", "max_momentum"),
    ),
    "OneCycleLR": (
        {"max_lr": 0.1, "total_steps": 10, "cycle_momentum": False},
        ("max_lr", "total_steps", "pct_start", "div_factor", "final_div_factor", "base_momentum", "max_momentum"),
    ),
    "ReduceLROnPlateau": ({}, ("factor", "patience", "threshold", "cooldown", "min_lr", "eps")),
    "ScheduleLR": ({"schedule": schedules.constant_schedule(1.0)}, ("factors",)),
    "LambdaLR": ({"lr_lambda": lambda count: 1.0}, ()),
    "MultiplicativeLR": ({"lr_lambda": lambda count: 1.0}, ()),
}
WRONG = [math.nan, -math.inf, 10**400, 1j, "1", b"1", object(), [[]], [math.nan], ["1"]]


OF_NUMBERS = {
    "constant_schedule": {"value": 0.1},
    "polynomial_schedule": {"init_value": 1.0, "end_value": 0.1, "power": 2.0, "transition_steps": 4},
    "linear_schedule": {"init_value": 1.0, "end_value": 0.1, "transition_steps": 4, "transition_begin": 1},
    "exponential_decay": {"init_value": 1.0, "transition_steps": 4, "decay_rate": 0.5},
    "cosine_decay_schedule": {"init_value": 1.0, "decay_steps": 4, "alpha": 0.1, "exponent": 1.0},
    "linear_onecycle_schedule": {"transition_steps": 9, "peak_value": 1.0, "pct_final": 0.8, "div_factor": 9.0},
    "cosine_onecycle_schedule": {"transition_steps": 9, "peak_value": 1.0, "final_div_factor": 100.0},
    "warmup_constant_schedule": {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 3},
    "warmup_cosine_decay_schedule": {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 3, "decay_steps": 9},
    "warmup_exponential_decay_schedule": {
        "init_value": 0.0, "peak_value": 1.0, "warmup_steps": 3, "transition_steps": 4, "decay_rate": 0.5,
    },
}  # fmt: skip


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 10**400, 1e300, "3", None, [1.0], 1j], ids=repr)
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_a_schedule_refuses_by_its_name_what_is_no_finite_number(name, wrong):
    make = getattr(schedules, name)
    for argument in OF_NUMBERS[name]:
        if (argument, wrong) == ("end_value", None):
            continue  # which some take for no end
        with pytest.raises(ValueError, match=f"^{name}: {argument} must be a finite number"):
            make(**{**OF_NUMBERS[name], argument: wrong})
    with pytest.raises(ValueError, match=f"^{name}: {next(iter(OF_NUMBERS[name]))} must be a finite number"):
        make(*[wrong] * len(OF_NUMBERS[name]))


@pytest.mark.parametrize("name", ["linear_onecycle_schedule", "cosine_onecycle_schedule"])
def test_a_one_cycle_schedule_refuses_to_divide_by_0(name):
    for argument in ("div_factor", "final_div_factor"):
        with pytest.raises(ValueError, match=f"{name}: {argument} must be a finite number other than 0, not 0"):
            getattr(schedules, name)(10, 1.0, **{argument: 0.0})


@pytest.mark.parametrize("param", ["rate", "", "beta7", "beta", 3, None, ["lr"]], ids=repr)
def test_an_option_that_the_optimizer_does_not_have_is_refused(param):
    optimizer = ow.optim.AdamW([ow.Parameter([1.0], device="cpu")])
    schedule_of_it = schedules.constant_schedule(0.1)
    for kind, argument in ((lr_scheduler.ExponentialLR, 0.5), (lr_scheduler.ScheduleLR, schedule_of_it)):
        with pytest.raises(ValueError, match="the optimizer has no option"):
            kind(optimizer, argument, param=param)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: f"{type(value).__name__} {str(value)[:4]}")
@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_number_is_refused_by_the_name_of_the_argument_and_changes_nothing(name, wrong):
    options, arguments = NUMBERS[name]
    for argument in (*arguments, *(["last_epoch"] if name != "ReduceLROnPlateau" else [])):
        optimizer = ours("cpu")
        before = [dict(group) for group in optimizer.param_groups]
        with pytest.raises(ValueError, match=f"^({name}: {argument} must be |Expected float or int {argument})"):
            getattr(lr_scheduler, name)(optimizer, **{**options, argument: wrong})
        assert optimizer.param_groups == before


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("StepLR", {"step_size": 0}, "StepLR: step_size must be a finite number other than 0, not 0"),
        ("CosineAnnealingLR", {"T_max": 0}, "CosineAnnealingLR: T_max must be a finite number other than 0, not 0"),
        ("CyclicLR", {"step_size_up": 0}, "CyclicLR: step_size_up must be a number > 0, not 0"),
        ("CyclicLR", {"step_size_up": -1}, "CyclicLR: step_size_up must be a number > 0, not -1"),
        ("OneCycleLR", {"div_factor": 0.0}, "OneCycleLR: div_factor must be a finite number other than 0, not 0"),
        ("OneCycleLR", {"pct_start": 0.1}, "pct_start times total_steps is 1"),
        ("ReduceLROnPlateau", {"patience": -1}, "ReduceLROnPlateau: patience must be a number >= 0, not -1"),
        ("ExponentialLR", {"last_epoch": -2}, "ExponentialLR: last_epoch must be an integer >= -1, not -2"),
    ],
)
def test_a_number_that_steps_could_not_use_is_refused_when_the_scheduler_is_made(name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(lr_scheduler, name)(ours("cpu"), **{**NUMBERS[name][0], **options})


def test_a_patience_may_be_infinite():
    scheduler = lr_scheduler.ReduceLROnPlateau(ours("cpu"), patience=math.inf)
    for _ in range(3):
        scheduler.step(1.0)
    assert scheduler.num_bad_epochs == 2


def test_a_line_of_one_cycle_ends_at_its_end(device):
    """torch's falls below 0 at the step after the last one, which no optimizer would accept."""
    optimizer = ours(device)
    scheduler = lr_scheduler.OneCycleLR(optimizer, 1.0, 10, anneal_strategy="linear")
    for _ in range(10):
        scheduler.step()
    np.testing.assert_allclose(values_of(optimizer, "lr"), [1 / 25 / 1e4] * 2)


def test_a_step_too_many_leaves_everything_as_it_was(device):
    optimizer = ours(device)
    scheduler = lr_scheduler.OneCycleLR(optimizer, 0.1, 3)
    step = ow.compile(lambda: scheduler.step(), device=device)
    for _ in range(3):
        step()
    before = values_of(optimizer, "lr", "momentum")
    for again in (step, scheduler.step):
        with pytest.raises(ValueError, match="Tried to step 4 times"):
            again()
        assert (values_of(optimizer, "lr", "momentum"), scheduler.last_epoch) == (before, 3)


def test_other_refusals(device):
    optimizer = ours(device)
    scheduler = lr_scheduler.StepLR(optimizer, 3)
    with pytest.raises(UnsupportedError, match="cannot go to an epoch"):
        ow.compile(lambda: scheduler.step(3), device=device)()
    with pytest.raises(ValueError, match="expected 2 factors"):
        lr_scheduler.ScheduleLR(optimizer, schedules.constant_schedule(1.0), factors=[1.0])
    with pytest.raises(ValueError, match="same optimizer"):
        lr_scheduler.ChainedScheduler([scheduler, lr_scheduler.StepLR(ours(device), 3)])
    with pytest.raises(ValueError, match="boundaries"):
        schedules.join_schedules([schedules.constant_schedule(1.0)], [3])
    noisy = schedules.noisy(schedules.constant_schedule(1.0), "uniform", 0.0, 1.0)
    with pytest.raises(ValueError, match="make the joined schedule noisy"):
        schedules.join_schedules([noisy, noisy], [3])
    with pytest.raises(ValueError, match="noise is uniform"):
        schedules.noisy(noisy, "white", 1.0)
    for make in (
        lambda s: s.cosine_decay_schedule(1.0, 0),
        lambda s: s.linear_onecycle_schedule(0, 1.0),
        lambda s: s.piecewise_constant_schedule(1.0, {3: -1.0}),
        lambda s: s.piecewise_interpolate_schedule("x", 1.0, {}),
    ):
        with pytest.raises(ValueError, match=r"must be|positive|non-negative"):
            make(schedules)
