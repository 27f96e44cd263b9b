"""ReduceLROnPlateau, with numbers, with tensors and in a recording."""

import numpy as np
import pytest
from schedule_problems import on_device, ours, torchs, values_of

import optirs_web as ow
from optirs_web.errors import ShapeError, UnsupportedError
from optirs_web.optim import lr_scheduler

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
    with pytest.raises(ShapeError, match="a metric must be one number"):
        alone.step(ow.tensor([1.0, 2.0], device=device))
