"""Schedules in a recording: as eager ones, at a dispatch, whatever somebody sets."""

import numpy as np
import pytest
from schedule_cases import EDGES, TORCH, scheduler
from schedule_problems import on_device, ours, values_of

import optirs_web as ow
from optirs_web.errors import UnsupportedError
from optirs_web.optim import lr_scheduler, schedules

RECORDED = [case for case in TORCH if "scheduler" not in case.name.lower() or case.on_device]
RECORDED += [case for case in EDGES if ";" in case.name]


def rates_of(optimizer):
    return [*values_of(optimizer, "lr", "momentum", "weight_decay"), *(on_device(optimizer, group=g) for g in range(2))]


def train(device, make, compiled, order, steps=12, change=None, **options):
    """Options and parameters after each of some steps."""
    optimizer = ours(device, lrs=(0.05, 0.1), **options)
    scheduler = make(optimizer)
    params = [group["params"][0] for group in optimizer.param_groups]

    def train_step(x):
        if order == "scheduler first":
            scheduler.step()
        optimizer.zero_grad()
        sum((w * w * x).sum() for w in params).backward()
        optimizer.step()
        if order == "optimizer first":
            scheduler.step()

    step = ow.compile(train_step, device=device) if compiled else lambda x: train_step(ow.tensor(x, device=device))
    history = []
    for number in range(steps):
        if change is not None and number == 6:
            change(optimizer)
        step(np.array([0.1], np.float32))
        history.append([*rates_of(optimizer), *(w.item() for w in params)])
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


def test_a_compiled_step_follows_what_a_tensor_is_assigned_between(device):
    rates = [ow.Parameter(0.5, device=device), ow.Parameter(0.5, device=device)]
    parts = [ow.optim.SGD([ow.Parameter([1.0], device=device)], lr=rate) for rate in rates]
    schedulers = [lr_scheduler.ExponentialLR(parts[0], 0.5), lr_scheduler.MultiplicativeLR(parts[1], lambda _: 0.5)]
    step = ow.compile(lambda: [scheduler.step() for scheduler in schedulers] and None, device=device)
    got = []
    for value in (0.25, None, 1.0, None):
        for rate in rates if value else ():
            rate.assign(value)
        step()
        got.append([rate.item() for rate in rates])
    assert got == [[0.125] * 2, [0.0625] * 2, [0.5] * 2, [0.25] * 2]

    def assigning():
        rates[0].assign(ow.tensor(0.5, device=device))
        schedulers[0].step()

    with pytest.raises(UnsupportedError, match="cannot assign"):
        ow.compile(assigning, device=device)()


def cost_of_a_replay(device, make, kind="AdamW"):
    optimizer = ours(device, kind)
    scheduler = make(optimizer)
    w = optimizer.param_groups[0]["params"][0]

    def train_step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()
        scheduler.step()

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
    scheduler = lr_scheduler.LambdaLR(optimizer, [lambda e: 0.9**e, lambda e: 1.0])
    grads = [ow.tensor([1.0], device=device) for _ in range(2)]
    optimizer.step(grads=grads)
    before = device.stats.copy()
    scheduler.step()
    optimizer.step(grads=grads)
    assert (device.stats - before).bytes_up == 4


def test_a_scheduler_steps_twice_in_a_recording(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.SGD([w], lr=0.5)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)

    def train_step(x):
        for _ in range(2):
            optimizer.zero_grad()
            (w * x).sum().backward()
            optimizer.step()
            scheduler.step()

    step = ow.compile(train_step, device=device)
    for _ in range(2):
        step([1.0])
    assert w.item() == 1.0 - 0.5 * (1 + 0.5 + 0.25 + 0.125)
    assert (scheduler.last_epoch, optimizer.param_groups[0]["lr"]) == (4, 0.5**5)


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
