"""Schedules that are saved, loaded from torch, or continued from an epoch."""

import copy
import json
import pickle

import numpy as np
import pytest
from schedule_cases import TORCH
from schedule_problems import on_device, ours, torchs, values_of

import optirs_web as ow
from optirs_web.errors import CheckpointError
from optirs_web.optim import lr_scheduler

STEPS = 1000
HOST, DEVICE = 1e-6, 2e-6  # of each value


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
        for scheduler in (expected, first, second):
            scheduler.step()
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


@pytest.mark.parametrize("wrong", [{"step_size": 0}, {"gamma": "x"}, {"last_epoch": "x"}, {"last_epoch": np.nan}, None])
@pytest.mark.parametrize("composed", [False, True])
def test_a_state_dict_that_does_not_fit_changes_nothing(device, wrong, composed):
    optimizer = ours(device)
    one = part = lr_scheduler.StepLR(optimizer, 2, 0.5)
    if composed:
        one = lr_scheduler.SequentialLR(optimizer, [lr_scheduler.ConstantLR(optimizer), part], [1])
    one.step()
    before, values = copy.deepcopy(one.state_dict()), one.values(6)
    broken = {**part.state_dict(), **wrong} if wrong else wrong
    if composed:
        first, _ = before["_schedulers"]
        broken = {**before, "_schedulers": [{**first, "total_iters": 9}, broken]}
    with pytest.raises(CheckpointError, match="does not fit"):
        one.load_state_dict(broken)
    assert (one.state_dict(), one.values(6)) == (before, values)
    one.step()
    assert one.last_epoch == 2


@pytest.mark.parametrize("make", ["SequentialLR", "ChainedScheduler"])
@pytest.mark.parametrize(
    "wrong", [{"T_max": 0}, {"step": 5}, {"T_max": 0, "step": 5}, {"values": None}, {"params": ()}]
)
def test_a_composed_state_dict_has_what_its_parts_keep(device, make, wrong):
    optimizer = ours(device)
    parts = [lr_scheduler.ConstantLR(optimizer), lr_scheduler.CosineAnnealingLR(optimizer, 5)]
    scheduler = (
        lr_scheduler.SequentialLR(optimizer, parts, [2])
        if make == "SequentialLR"
        else lr_scheduler.ChainedScheduler(parts)
    )
    scheduler.step()
    before = copy.deepcopy(scheduler.state_dict())
    first, second = before["_schedulers"]
    broken = [{**before, "_schedulers": [{**first, "total_iters": 9}, {**second, **wrong}]}]
    if "T_max" not in wrong:
        broken.append({**before, **wrong})
    for state in broken:
        with pytest.raises(CheckpointError, match="does not fit"):
            scheduler.load_state_dict(state)
    assert scheduler.state_dict() == before
    scheduler.load_state_dict(before)
    scheduler.step()


def test_a_rate_that_is_a_tensor_follows_the_state_that_is_loaded(device):
    rate = ow.tensor(0.5, device=device)
    optimizer = ow.optim.SGD([ow.Parameter([1.0], device=device)], lr=rate)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    saved = optimizer.state_dict(), scheduler.state_dict()
    for _ in range(3):
        scheduler.step()
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == on_device(optimizer) == 0.25


def test_a_copy_of_an_optimizer_has_the_options_and_no_scheduler(device):
    optimizer = ours(device)
    lr_scheduler.ExponentialLR(optimizer, 0.5).step()
    twin = copy.deepcopy(optimizer)
    assert values_of(twin, "lr") == [0.25, 0.5]
    scheduler = lr_scheduler.ExponentialLR(twin, 0.5)
    scheduler.step()
    assert (on_device(twin), on_device(optimizer)) == (0.125, 0.25)


def test_a_state_dict_does_not_replace_methods():
    optimizer = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=0.1)
    scheduler = ow.optim.lr_scheduler.StepLR(optimizer, 3)
    with pytest.raises(CheckpointError, match="StepLR has no 'step'"):
        scheduler.load_state_dict({**scheduler.state_dict(), "step": 5})
    scheduler.step()


@pytest.mark.parametrize("is_part", [False, True])
def test_milestones_come_through_json(is_part):
    def make():
        optimizer = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        steps = lr_scheduler.MultiStepLR(optimizer, [2, 3, 3], gamma=0.5)
        if not is_part:
            return steps
        return lr_scheduler.SequentialLR(optimizer, [lr_scheduler.ConstantLR(optimizer), steps], [1])

    first, second = make(), make()
    first.step()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    first.optimizer.param_groups[0]["lr"] = second.optimizer.param_groups[0]["lr"] = 1.0
    for _ in range(4):
        first.step(), second.step()
        assert first.get_last_lr() == second.get_last_lr()
    assert first.get_last_lr() == [0.125]


SCHEDULERS = {
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, 2),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10),
    "SequentialLR": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)], [3]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_an_optimizer_and_its_scheduler_continue_after_pickle(device, name):
    optimizer = ow.optim.AdamW([ow.Parameter([1.0, 2.0], device=device)], lr=0.1)
    pairs = [(optimizer, SCHEDULERS[name](optimizer))]

    def train():
        for trained, scheduler in pairs:
            trained.step(grads=[[1.0, 1.0]])
            scheduler.step()

    train()
    pairs.append(pickle.loads(pickle.dumps(pairs[0])))
    for _ in range(4):
        train()
    rates, values = zip(
        *((trained.param_groups[0]["lr"], trained.param_groups[0]["params"][0].tolist()) for trained, _ in pairs),
        strict=True,
    )
    assert rates[0] == rates[1]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6)  # the host computes the options of the copy
