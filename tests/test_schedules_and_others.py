"""Schedules and what others do with the options; and schedules of any option."""

import math

import numpy as np
import pytest
from schedule_cases import TORCH
from schedule_problems import on_device, ours, torchs, values_of

import optirs_web as ow
from optirs_web.optim import lr_scheduler, schedules

STEPS = 1000
HOST, DEVICE = 1e-6, 2e-6  # of each value


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


CHAINS = ["StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "PolynomialLR", "ChainedScheduler"]
PLATEAUS = {
    "plateau": lambda m, o: m.ReduceLROnPlateau(o, patience=0, min_lr=0.01),
    "plateau of a tensor": lambda m, o: m.ReduceLROnPlateau(o, patience=0, min_lr=0.01),
}
COSINES = {"cosine": lambda m, o: m.CosineAnnealingLR(o, 40, 0.01)}
MAKERS = {case.name: case.make for case in TORCH if case.name in CHAINS} | PLATEAUS | COSINES


@pytest.mark.parametrize("name", MAKERS)
def test_a_group_that_is_added_follows_as_in_torch(device, torch, name):
    theirs, mine = torchs(torch, "SGD"), ours(device)
    expected, got = MAKERS[name](torch.optim.lr_scheduler, theirs), MAKERS[name](lr_scheduler, mine)
    metric = [1.0] if "plateau" in name else []
    for count in range(40):
        if count == 17:
            theirs.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.7})
            mine.add_param_group({"params": [ow.Parameter([1.0], device=device)], "lr": 0.7})
        expected.step(*metric)
        got.step(*(ow.tensor(values, device=device) if "tensor" in name else values for values in metric))
        np.testing.assert_allclose(got.get_last_lr(), expected.get_last_lr(), rtol=HOST, err_msg=str(count))
    rates = [on_device(mine, group=g) for g in range(3)]
    np.testing.assert_allclose(rates, values_of(theirs, "lr"), rtol=DEVICE)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda m, o: m.LambdaLR(o, lambda e: 0.9**e), ValueError),
        (lambda m, o: m.MultiplicativeLR(o, lambda e: 0.9), ValueError),
        (lambda m, o: m.CosineAnnealingLR(o, 4), ValueError),
        (lambda m, o: m.CosineAnnealingWarmRestarts(o, 4), ValueError),
        (lambda m, o: m.CyclicLR(o, 0.1, 0.3, 4), ValueError),
        (lambda m, o: m.OneCycleLR(o, 1.0, 20), KeyError),
        (lambda m, o: m.SequentialLR(o, [m.LinearLR(o, 0.5), m.ExponentialLR(o, 0.9)], [5]), ValueError),
        (lambda m, o: m.ReduceLROnPlateau(o, patience=2, min_lr=[0.1, 0.1]), RuntimeError),
    ],
)
def test_a_group_that_is_added_without_a_first_value_is_refused_where_torch_does(torch, make, error):
    counts = []
    for module, optimizer, late in (
        (torch.optim.lr_scheduler, torchs(torch, "SGD"), torch.nn.Parameter(torch.ones(1))),
        (lr_scheduler, ours("cpu"), ow.Parameter([1.0], device="cpu")),
    ):
        scheduler = make(module, optimizer)
        optimizer.add_param_group({"params": [late], "lr": 0.7})
        counts.append(0)
        try:
            for _ in range(20):
                scheduler.step(*([1.0] if error is RuntimeError else []))
                counts[-1] += 1
        except error:
            continue
    assert counts[0] == counts[1] < 20


def test_schedules_go_on_when_the_optimizer_needs_other_kernels(device):
    optimizer = ours(device, lrs=(0.5,), momentum=0.0)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    grads = [ow.tensor([1.0], device=device)]
    for count in range(6):
        if count == 3:
            optimizer.param_groups[0]["momentum"] = 0.9
        optimizer.step(grads=grads)
        scheduler.step()
    assert on_device(optimizer) == optimizer.param_groups[0]["lr"] == 0.5**7


def test_the_option_of_an_optimizer_around_another_is_that_of_the_inner_one(device):
    inner = ours(device, lrs=(0.5,))
    optimizer = ow.optim.Lookahead(inner, k=2)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    scheduler.step()
    assert on_device(inner) == optimizer.param_groups[0]["lr"] == 0.25
    assert scheduler.is_on_device


def test_an_optimizer_may_compute_with_more_than_the_option(device):
    """NAdam and others make of an option what a device does not know: the host does it."""
    optimizer = ow.optim.AdEMAMix([ow.Parameter([1.0], device=device)], lr=0.5)
    scheduler = lr_scheduler.ScheduleLR(optimizer, schedules.linear_schedule(0.5, 0.1, 8), param="beta1")
    scheduler.step()
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


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["PolynomialLR", "LinearLR"])
def test_a_group_that_is_added_when_the_schedule_is_at_nothing_trains(device, name, compiled):
    first, second = (ow.Parameter([0.0], device=device) for _ in range(2))
    optimizer = ow.optim.SGD([first], lr=0.5)
    options = {"end_factor": 0.0} if name == "LinearLR" else {}
    scheduler = getattr(lr_scheduler, name)(optimizer, total_iters=2, **options)

    def train_step():
        params = [param for group in optimizer.param_groups for param in group["params"]]
        optimizer.step(grads=[ow.ones((1,), device=device) for _ in params])
        scheduler.step()

    step = ow.compile(train_step, device=device) if compiled else train_step
    for number in range(6):
        if number == 2:
            optimizer.add_param_group({"params": [second], "lr": 0.125})
        step()
    assert (second.item(), optimizer.param_groups[1]["lr"]) == (-0.5, 0.125)


def test_a_compiled_chain_takes_in_a_group_and_a_state_dict(device):
    first, second = (ow.Parameter([0.0], device=device) for _ in range(2))
    optimizer = ow.optim.SGD([first], lr=0.5)
    parts = [lr_scheduler.StepLR(optimizer, 3, 0.5), lr_scheduler.ConstantLR(optimizer, 0.5, 4)]
    scheduler = lr_scheduler.ChainedScheduler(parts)

    def train_step():
        params = [param for group in optimizer.param_groups for param in group["params"]]
        optimizer.step(grads=[ow.ones((1,), device=device) for _ in params])
        scheduler.step()

    step = ow.compile(train_step, device=device)
    for number in range(8):
        if number == 3:
            optimizer.add_param_group({"params": [second], "lr": 0.125})
        if number == 6:
            scheduler.load_state_dict(scheduler.state_dict())
        step()
    assert [group["lr"] for group in optimizer.param_groups] == scheduler.get_last_lr()
