"""Schedules: torch's and optax's numbers, on the host and on the device; in a recording; and what others change."""

import copy
import math
import warnings

import numpy as np
import pytest
from schedule_cases import OPTAX_NAMES, OPTIRS, TORCH, schedule, scheduler

import optirs_web as ow
from optirs_web.errors import ShapeError, UnsupportedError
from optirs_web.optim import lr_scheduler, schedules
from optirs_web.runtime.buffer import View

STEPS = 1000
HOST, DEVICE = 1e-6, 2e-6  # of each value


@pytest.fixture
def torch(requires):
    module = requires("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of schedulers that step before the optimizer
        yield module


def torchs(torch, kind, lrs=(0.5, 1.0)):
    options = {"momentum": 0.9} if kind == "SGD" else {}
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in lrs]
    return getattr(torch.optim, kind)(groups, **options)


def ours(device, kind="SGD", lrs=(0.5, 1.0), **options):
    groups = [{"params": [ow.Parameter([1.0], device=device)], "lr": lr} for lr in lrs]
    return getattr(ow.optim, kind)(groups, **({"momentum": 0.9, **options} if kind == "SGD" else options))


def values_of(optimizer, *names):
    return [
        group["betas"][0] if name == "beta1" else float(group[name])
        for name in names
        for group in optimizer.param_groups
    ]


def on_device(optimizer, name="lr", group=0):
    """What the optimizer's kernels will read."""
    optimizer._refresh()
    layout = optimizer._built
    word = group * len(layout.rule.hyper) + layout.rule.hyper.index(name)
    return layout.device.read(View(layout.hyper_buffer, 4 * word, 4)).cast("f")[0]


# Numbers.


@pytest.mark.parametrize("case", TORCH, ids=lambda case: case.name)
def test_torchs_numbers(numerics, torch, case):
    theirs = torchs(torch, case.optimizer)
    expected = case.make(torch.optim.lr_scheduler, theirs)
    got = numerics("schedule", case.name, case.optimizer, STEPS)
    assert got["on_device"] == case.on_device
    params = ["lr"] if len(got["host"]) == 2 else ["lr", "beta1" if case.optimizer == "AdamW" else "momentum"]
    want = [values_of(theirs, *params)]
    for _ in range(STEPS):
        expected.step()
        want.append(values_of(theirs, *params))
    np.testing.assert_allclose(np.transpose(got["host"]), want, rtol=HOST, atol=1e-18)
    np.testing.assert_allclose(got["device"], got["host"], rtol=DEVICE, atol=1e-37)


@pytest.mark.parametrize("name", OPTAX_NAMES)
def test_optaxs_numbers(numerics, requires, name):
    requires("optax")
    import jax
    import optax

    got = numerics("schedule", name, "SGD", STEPS)
    with jax.enable_x64(True):
        theirs = schedule(name, optax.schedules)
        want = [float(theirs(np.float64(count))) for count in range(1 + STEPS)]
    np.testing.assert_allclose(got["host"][0], want, rtol=HOST, atol=1e-18)
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
    one = lr_scheduler.ScheduleLR(optimizer, schedules.linear_schedule(0.8, 0.0, 4), factors=factors)
    one.step()
    np.testing.assert_allclose(one.get_last_lr(), [0.15, 0.3, 0.6], rtol=1e-6)
    np.testing.assert_allclose([on_device(optimizer, group=g) for g in range(3)], [0.15, 0.3, 0.6], rtol=DEVICE)
    relative = ours(device, lrs=(1.0, 1.0, 1.0))
    two = lr_scheduler.ScheduleLR(relative, schedules.linear_schedule(1.0, 0.0, 4), relative=True, factors=factors)
    two.step()
    np.testing.assert_allclose(values_of(relative, "lr"), [0.1875, 0.375, 0.75], rtol=1e-6)


def test_values_and_plots(device, tmp_path):
    optimizer = ours(device)
    one = lr_scheduler.CosineAnnealingLR(optimizer, 10)
    np.testing.assert_allclose(one.values(11)[::5], [0.5, 0.25, 0.0], atol=1e-7)
    assert lr_scheduler.LambdaLR(ours(device), lambda e: e).values(3, group=1) == [0.0, 1.0, 2.0]
    figure = one.plot(11, tmp_path / "lr.png")
    assert (tmp_path / "lr.png").stat().st_size > 1000
    assert figure.axes[0].get_ylabel() == "lr"
    schedules.constant_schedule(1.0).plot(3)


# In a recording.

RECORDED = [case for case in TORCH if "scheduler" not in case.name.lower() or case.on_device]


def train(device, make, compiled, order, steps=12, change=None, **options):
    """Options and parameters after each of some steps."""
    optimizer = ours(device, lrs=(0.05, 0.1), **options)
    one = make(optimizer)
    params = [group["params"][0] for group in optimizer.param_groups]

    def train_step(x):
        if order == "scheduler first":
            one.step()
        optimizer.zero_grad()
        sum((w * w * x).sum() for w in params).backward()
        optimizer.step()
        if order == "optimizer first":
            one.step()

    step = ow.compile(train_step, device=device) if compiled else lambda x: train_step(ow.tensor(x, device=device))
    history = []
    for number in range(steps):
        if change is not None and number == 6:
            change(optimizer)
        step(np.array([0.1], np.float32))
        history.append([*values_of(optimizer, "lr", "momentum", "weight_decay"), *(w.item() for w in params)])
    return np.array(history)


@pytest.mark.parametrize("order", ["optimizer first", "scheduler first"])
@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case.name)
def test_a_recorded_step_follows_as_an_eager_one_does(device, case, order):
    def make(optimizer):
        return case.make(lr_scheduler, optimizer)

    eager = train(device, make, compiled=False, order=order)
    np.testing.assert_array_equal(train(device, make, compiled=True, order=order), eager)
    assert len(np.unique(eager[:, -1])) == len(eager)


@pytest.mark.parametrize("order", ["optimizer first", "scheduler first"])
@pytest.mark.parametrize(
    "name", ["ExponentialLR", "LambdaLR", "MultiplicativeLR", "OneCycleLR", "SequentialLR", "ChainedScheduler"]
)
def test_what_somebody_sets_counts_in_a_recording_too(device, name, order):
    def change(optimizer):
        optimizer.param_groups[0]["lr"] = 0.0123
        optimizer.param_groups[1]["weight_decay"] = 0.1

    def make(optimizer):
        return scheduler(name, lr_scheduler, optimizer, schedules)

    eager = train(device, make, compiled=False, order=order, change=change, weight_decay=0.2)
    recorded = train(device, make, compiled=True, order=order, change=change, weight_decay=0.2)
    np.testing.assert_array_equal(recorded, eager)


def cost_of_a_replay(device, make, kind="AdamW"):
    optimizer = ours(device, kind)
    one = make(optimizer)
    w = optimizer.param_groups[0]["params"][0]

    def train_step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()
        one.step()

    step = ow.compile(train_step, device=device)
    x = ow.tensor([1.0], device=device)
    for _ in range(5):
        step(x)
    before = device.stats.copy()
    step(x)
    return device.stats - before


def test_a_replay_moves_nothing_up_or_down_and_costs_one_dispatch(device):
    def constant(optimizer):
        class Nothing:
            def step(self):
                pass

        return Nothing()

    without = cost_of_a_replay(device, constant)
    for case in TORCH:
        if case.on_device:
            cost = cost_of_a_replay(device, lambda optimizer, case=case: case.make(lr_scheduler, optimizer))
            assert (cost.bytes_up, cost.bytes_down, cost.submits, cost.pipelines) == (0, 0, 1, 0), case.name
            assert cost.dispatches == without.dispatches + 1, case.name


def test_a_function_costs_a_write_of_4_bytes(device):
    def cost(make, kind):
        return cost_of_a_replay(device, make, kind).bytes_up

    assert cost(lambda o: lr_scheduler.LambdaLR(o, lambda e: 0.9**e), "AdamW") == 4 * 2
    assert cost(lambda o: lr_scheduler.MultiplicativeLR(o, lambda e: 0.9), "SGD") == 4 * 2
    optimizer = ours(device)
    one = lr_scheduler.LambdaLR(optimizer, [lambda e: 0.9**e, lambda e: 1.0])
    grads = [ow.tensor([1.0], device=device) for _ in range(2)]
    optimizer.step(grads=grads)
    before = device.stats.copy()
    one.step()
    optimizer.step(grads=grads)
    assert (device.stats - before).bytes_up == 4


def test_a_scheduler_steps_twice_in_a_recording(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.SGD([w], lr=0.5)
    one = lr_scheduler.ExponentialLR(optimizer, 0.5)

    def train_step(x):
        for _ in range(2):
            optimizer.zero_grad()
            (w * x).sum().backward()
            optimizer.step()
            one.step()

    step = ow.compile(train_step, device=device)
    for _ in range(2):
        step([1.0])
    assert w.item() == 1.0 - 0.5 * (1 + 0.5 + 0.25 + 0.125)
    assert (one.last_epoch, optimizer.param_groups[0]["lr"]) == (4, 0.5**5)


def test_another_scheduler_makes_a_recording_anew(device):
    optimizer = ours(device, lrs=(0.5,))
    first = lr_scheduler.ExponentialLR(optimizer, 0.5)
    step = ow.compile(lambda: first.step(), device=device)
    step()
    lr_scheduler.ConstantLR(optimizer, 0.5, 100)
    for _ in range(2):
        step()
    assert optimizer.param_groups[0]["lr"] == 0.5**5
    assert on_device(optimizer) == 0.5**5


# What others change.


@pytest.mark.parametrize("case", [case for case in TORCH if "momentum" not in case.name], ids=lambda case: case.name)
def test_a_value_that_somebody_sets_counts_as_in_torch(device, torch, case):
    theirs, mine = torchs(torch, case.optimizer), ours(device, case.optimizer)
    expected, got = case.make(torch.optim.lr_scheduler, theirs), case.make(lr_scheduler, mine)
    for count in range(400):
        if count in (7, 23, 150, 301):
            for optimizer in (theirs, mine):
                optimizer.param_groups[0]["lr"] = 0.123
        expected.step()
        got.step()
        np.testing.assert_allclose(values_of(mine, "lr"), values_of(theirs, "lr"), rtol=HOST, err_msg=str(count))
    np.testing.assert_allclose([on_device(mine, group=g) for g in range(2)], values_of(mine, "lr"), rtol=DEVICE)


def test_a_value_set_after_the_end_stays(device, torch):
    theirs, mine = torchs(torch, "SGD"), ours(device)
    expected, got = (
        module.PolynomialLR(optimizer, 5)
        for module, optimizer in ((torch.optim.lr_scheduler, theirs), (lr_scheduler, mine))
    )
    for count in range(12):
        if count == 8:
            theirs.param_groups[0]["lr"] = mine.param_groups[0]["lr"] = 0.25
        expected.step()
        got.step()
        np.testing.assert_allclose(values_of(mine, "lr"), values_of(theirs, "lr"), rtol=HOST)
    assert on_device(mine) == 0.25
    assert not got.is_on_device


def test_schedules_go_on_when_the_optimizer_needs_other_kernels(device):
    optimizer = ours(device, lrs=(0.5,), momentum=0.0)
    one = lr_scheduler.ExponentialLR(optimizer, 0.5)
    grads = [ow.tensor([1.0], device=device)]
    for count in range(6):
        if count == 3:
            optimizer.param_groups[0]["momentum"] = 0.9
        optimizer.step(grads=grads)
        one.step()
    assert on_device(optimizer) == optimizer.param_groups[0]["lr"] == 0.5**7


def test_the_option_of_an_optimizer_around_another_is_that_of_the_inner_one(device):
    inner = ours(device, lrs=(0.5,))
    optimizer = ow.optim.Lookahead(inner, k=2)
    one = lr_scheduler.ExponentialLR(optimizer, 0.5)
    one.step()
    assert on_device(inner) == optimizer.param_groups[0]["lr"] == 0.25
    assert one.is_on_device


def test_an_optimizer_may_compute_with_more_than_the_option(device):
    """NAdam and others make of an option what a device does not know: the host does it."""
    optimizer = ow.optim.AdEMAMix([ow.Parameter([1.0], device=device)], lr=0.5)
    one = lr_scheduler.ScheduleLR(optimizer, schedules.linear_schedule(0.5, 0.1, 8), param="beta1")
    one.step()
    names = optimizer._built.rule.hyper
    want = optimizer.hyper(optimizer.param_groups[0])
    for name in (name for name in names if "beta1" in name):
        np.testing.assert_allclose(on_device(optimizer, name), want[name], rtol=1e-6)


# Any option.


def test_a_schedule_for_any_option(device):
    optimizer = ours(device, "AdamW", lrs=(0.5,))
    decay = lr_scheduler.ScheduleLR(optimizer, schedules.cosine_decay_schedule(0.2, 10), param="weight_decay")
    beta = lr_scheduler.LinearLR(optimizer, 0.5, total_iters=4, param="beta1")
    for _ in range(3):
        decay.step()
        beta.step()
    group = optimizer.param_groups[0]
    assert group["initial_beta1"] == 0.9
    np.testing.assert_allclose(group["weight_decay"], 0.1 * (1 + math.cos(0.3 * math.pi)), rtol=1e-6)
    np.testing.assert_allclose(group["betas"], (0.9 * 0.875, 0.999), rtol=1e-12)
    np.testing.assert_allclose(on_device(optimizer, "weight_decay"), group["weight_decay"], rtol=DEVICE)
    np.testing.assert_allclose(on_device(optimizer, "log_beta1"), math.log(group["betas"][0]), rtol=DEVICE)
    np.testing.assert_allclose(on_device(optimizer, "one_minus_beta1"), 1 - group["betas"][0], rtol=DEVICE)
    assert decay.is_on_device
    assert beta.is_on_device


def test_a_decay_that_begins_at_0_is_felt(device):
    def final(option):
        w = ow.Parameter([1.0], device=device)
        optimizer = ow.optim.SGD([w], lr=0.5, **option)
        rising = lr_scheduler.ScheduleLR(optimizer, schedules.linear_schedule(0.0, 0.5, 2), param="weight_decay")

        def train_step():
            optimizer.step(grads=[ow.zeros((1,), device=device)])
            rising.step()

        for _ in range(3):
            train_step()
        return w.item()

    assert final({}) == pytest.approx(1.0 * (1 - 0.125) * (1 - 0.25))
    assert final({"momentum": 0.5}) == pytest.approx(0.875 - 0.5 * (0.5 * 0.25 + 0.5 * 0.875))


# Plateaus.

LOSSES = [5.0, 4.0, 4.0, 3.9999, 4.1, 4.0, 3.0, 3.1, 3.2, 3.1, 3.3, 2.0, 2.1, 2.2, 2.3, 2.2, 2.4, 2.2, 2.2, 2.5, 2.2]
PLATEAUS = [
    {"patience": 2},
    {"patience": 1, "cooldown": 2, "factor": 0.5},
    {"patience": 1, "threshold": 0.05, "threshold_mode": "abs", "min_lr": [0.02, 0.5]},
    {"mode": "max", "patience": 1, "factor": 0.3},
    {"mode": "max", "patience": 3, "threshold": 0.2, "threshold_mode": "abs", "eps": 0.2},
]


@pytest.mark.parametrize("way", ["numbers", "tensors", "recorded"])
@pytest.mark.parametrize("options", PLATEAUS, ids=str)
def test_plateaus_are_torchs(device, torch, options, way):
    theirs, optimizer = torchs(torch, "SGD"), ours(device)
    expected = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options)
    got = lr_scheduler.ReduceLROnPlateau(optimizer, **options)
    step = {
        "numbers": got.step,
        "tensors": lambda loss: got.step(ow.tensor(loss, device=device)),
        "recorded": ow.compile(got.step, device=device),
    }[way]
    rates = []
    for number, loss in enumerate(np.array(LOSSES, np.float32)):
        expected.step(float(loss))
        before = device.stats.copy()
        step(np.asarray(loss) if way == "recorded" else float(loss))
        assert (device.stats - before).bytes_down == 0
        if number % 3 == 2 or number > 15:
            np.testing.assert_allclose(got.get_last_lr(), expected.get_last_lr(), rtol=1e-6)
            np.testing.assert_allclose(values_of(optimizer, "lr"), values_of(theirs, "lr"), rtol=1e-6)
        rates.append(values_of(theirs, "lr")[0])
    assert len(set(rates)) > 1
    state = got.state_dict()
    for name in ("best", "num_bad_epochs", "cooldown_counter", "last_epoch"):
        assert state[name] == pytest.approx(getattr(expected, name))
    np.testing.assert_allclose([on_device(optimizer, group=g) for g in range(2)], values_of(theirs, "lr"), rtol=1e-6)


def test_a_plateau_on_the_device_takes_what_somebody_sets_and_survives_other_kernels(device):
    optimizer = ours(device, lrs=(0.5,), momentum=0.0)
    got = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    loss = ow.tensor(1.0, device=device)
    for _ in range(2):
        got.step(loss)
    assert on_device(optimizer) == 0.25
    optimizer.param_groups[0]["momentum"] = 0.9
    optimizer.step(grads=[ow.tensor([1.0], device=device)])
    assert on_device(optimizer) == 0.25
    optimizer.param_groups[0]["lr"] = 0.75
    got.step(loss)
    assert on_device(optimizer) == 0.375
    assert got.get_last_lr() == [0.375]
    optimizer.param_groups[0]["lr"] = 0.5
    assert got.get_last_lr() == [0.5]
    again = lr_scheduler.ReduceLROnPlateau(ours(device, lrs=(0.5,)), patience=0, factor=0.5)
    again.load_state_dict(got.state_dict())
    again.step(loss)
    assert again.get_last_lr() == [0.25]


def test_a_plateau_with_another_scheduler_reads_its_metric(device):
    optimizer = ours(device, lrs=(0.5,))
    other = lr_scheduler.ExponentialLR(optimizer, 0.5)
    got = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    loss = ow.tensor(1.0, device=device)
    for _ in range(2):
        got.step(loss)
        other.step()
    assert on_device(optimizer) == 0.5**4
    with pytest.raises(UnsupportedError, match="one scheduler only"):
        ow.compile(got.step, device=device)(np.float32(1.0))
    alone = lr_scheduler.ReduceLROnPlateau(ours(device))
    with pytest.raises(ShapeError, match="a metric is one number"):
        alone.step(ow.tensor([1.0, 2.0], device=device))


# State.


@pytest.mark.parametrize("case", TORCH, ids=lambda case: case.name)
def test_torchs_state_and_ours_are_taken_over(device, torch, case):
    theirs = torchs(torch, case.optimizer)
    expected = case.make(torch.optim.lr_scheduler, theirs)
    for _ in range(37):
        expected.step()
    mine = ours(device, case.optimizer)
    first = case.make(lr_scheduler, mine)
    first.load_state_dict(copy.deepcopy(expected.state_dict()))
    set_groups(mine, theirs)
    again = ours(device, case.optimizer)
    for _ in range(20):
        expected.step()
        first.step()
    second = case.make(lr_scheduler, again)
    again.load_state_dict(mine.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for _ in range(60):
        for one in (expected, first, second):
            one.step()
        for optimizer in (mine, again):
            np.testing.assert_allclose(values_of(optimizer, "lr"), values_of(theirs, "lr"), rtol=HOST)
    np.testing.assert_allclose([on_device(again, group=g) for g in range(2)], values_of(again, "lr"), rtol=DEVICE)
    if hasattr(expected, "last_epoch"):
        assert second.last_epoch == 117


def set_groups(mine, theirs):
    for group, other in zip(mine.param_groups, theirs.param_groups, strict=True):
        group.update({name: value for name, value in other.items() if name in group and name != "params"})


@pytest.mark.parametrize(
    "name", ["StepLR", "ExponentialLR", "LinearLR", "PolynomialLR", "CosineAnnealingLR", "LambdaLR"]
)
def test_going_on_from_an_epoch_is_torchs(device, torch, name):
    theirs, mine = torchs(torch, "SGD", (0.2, 0.4)), ours(device, lrs=(0.2, 0.4))
    make = {
        "StepLR": lambda m, o: m.StepLR(o, 10, last_epoch=9),
        "ExponentialLR": lambda m, o: m.ExponentialLR(o, 0.9, last_epoch=9),
        "LinearLR": lambda m, o: m.LinearLR(o, total_iters=30, last_epoch=9),
        "PolynomialLR": lambda m, o: m.PolynomialLR(o, 30, 2.0, last_epoch=9),
        "CosineAnnealingLR": lambda m, o: m.CosineAnnealingLR(o, 30, 0.1, last_epoch=9),
        "LambdaLR": lambda m, o: m.LambdaLR(o, lambda e: 0.9**e, last_epoch=9),
    }[name]
    with pytest.raises(KeyError, match=r"'initial_lr' is not specified in param_groups\[0\]"):
        make(lr_scheduler, mine)
    for optimizer in (theirs, mine):
        for group in optimizer.param_groups:
            group["initial_lr"] = 2 * group["lr"]
    expected, got = make(torch.optim.lr_scheduler, theirs), make(lr_scheduler, mine)
    for _ in range(15):
        np.testing.assert_allclose(values_of(mine, "lr"), values_of(theirs, "lr"), rtol=HOST)
        expected.step()
        got.step()
    assert mine.state_dict()["param_groups"][0]["initial_lr"] == 0.4


def test_an_epoch_may_be_given_and_be_a_fraction(device, torch):
    for restarts in (1, 2):
        theirs, mine = torchs(torch, "SGD"), ours(device)
        expected = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(theirs, 5, restarts, 0.01)
        got = lr_scheduler.CosineAnnealingWarmRestarts(mine, 5, restarts, 0.01)
        for epoch in (0.5, 3.25, 4.75, 5.0, 12.5, None, None, None, 33.0, None):
            expected.step(epoch)
            got.step(epoch)
            np.testing.assert_allclose(values_of(mine, "lr"), values_of(theirs, "lr"), rtol=HOST)
            np.testing.assert_allclose(on_device(mine), values_of(mine, "lr")[0], rtol=DEVICE)
            assert (got.T_cur, got.T_i) == (pytest.approx(expected.T_cur), expected.T_i)
    theirs, mine = torchs(torch, "SGD"), ours(device)
    expected, got = torch.optim.lr_scheduler.StepLR(theirs, 5), lr_scheduler.StepLR(mine, 5)
    for epoch in (3, 12, None, 4, None):
        expected.step(epoch)
        got.step(epoch)
        np.testing.assert_allclose(values_of(mine, "lr"), values_of(theirs, "lr"), rtol=HOST)
        np.testing.assert_allclose(on_device(mine), values_of(mine, "lr")[0], rtol=DEVICE)


def test_a_copy_of_an_optimizer_has_the_options_and_no_scheduler(device):
    optimizer = ours(device)
    lr_scheduler.ExponentialLR(optimizer, 0.5).step()
    twin = copy.deepcopy(optimizer)
    assert values_of(twin, "lr") == [0.25, 0.5]
    one = lr_scheduler.ExponentialLR(twin, 0.5)
    one.step()
    assert (on_device(twin), on_device(optimizer)) == (0.125, 0.25)


def test_a_scheduler_of_ones_own(device):
    class Halving(lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base / 2**self.last_epoch for base in self.base_lrs]

    optimizer = ours(device)
    one = Halving(optimizer)
    step = ow.compile(lambda: one.step(), device=device)
    for _ in range(3):
        step()
    assert one.get_last_lr() == values_of(optimizer, "lr") == [0.5 / 8, 1.0 / 8]
    with pytest.raises(NotImplementedError, match="no formula"):
        one.values(3)


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
        lambda m, o: [one.step() for one in [m.OneCycleLR(o, 0.1, 3)] for _ in range(4)],
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


def test_a_step_too_many_leaves_everything_as_it_was(device):
    optimizer = ours(device)
    one = lr_scheduler.OneCycleLR(optimizer, 0.1, 3)
    step = ow.compile(lambda: one.step(), device=device)
    for _ in range(3):
        step()
    before = values_of(optimizer, "lr", "momentum")
    for again in (step, one.step):
        with pytest.raises(ValueError, match="Tried to step 4 times"):
            again()
        assert (values_of(optimizer, "lr", "momentum"), one.last_epoch) == (before, 3)


def test_other_refusals(device):
    optimizer = ours(device)
    one = lr_scheduler.StepLR(optimizer, 3)
    with pytest.raises(UnsupportedError, match="does not go to an epoch"):
        ow.compile(lambda: one.step(3), device=device)()
    with pytest.raises(ValueError, match="expected 2 factors"):
        lr_scheduler.ScheduleLR(optimizer, schedules.constant_schedule(1.0), factors=[1.0])
    with pytest.raises(ValueError, match="same optimizer"):
        lr_scheduler.ChainedScheduler([one, lr_scheduler.StepLR(ours(device), 3)])
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
