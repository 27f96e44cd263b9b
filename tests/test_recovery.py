"""A device that is lost in mid-run: training goes on from the last snapshot."""

import pytest
from processes import run_python

TRAINING = """
import optirs_web as ow

def make(device, **options):
    w = ow.Parameter([[0.5, -1.0], [2.0, 0.25]], device=device)
    b = ow.Parameter([0.0, 0.0], device=device)
    optimizer = ow.optim.AdamW([w, b], lr=0.1)
    def train_step(x):
        optimizer.zero_grad()
        loss = ow.cross_entropy(x @ w + b, [0, 1])
        loss.backward()
        optimizer.step()
        return loss
    return (w, b), optimizer, ow.compile(train_step, device=device, **options)

def batch(number):
    return [[1.0 + number, -1.0], [0.5, 0.1 * number]]

def values(params, optimizer):
    state = optimizer.state_dict()["state"]
    return [one.tolist() for one in params], [float(state[0]["step"]), state[1]["exp_avg_sq"].tolist()]

def of_steps(device, numbers):
    params, optimizer, step = make(device)
    for number in numbers:
        step(batch(number))
    return values(params, optimizer)
"""


def on_vulkan(program):
    return run_python(TRAINING + program)


@pytest.fixture(autouse=True)
def needs_vulkan(open_device):
    open_device("vulkan")


def test_a_step_compiled_with_recover_goes_on_from_the_last_snapshot():
    lines = on_vulkan(
        """
params, optimizer, step = make("vulkan", recover=True, snapshot_every=5)
for number in range(10):
    if number == 7:
        device = ow.device("vulkan")
        device._backend._device.destroy()
    loss = step(batch(number))
print(ow.device("vulkan") is not device, params[0].device is ow.device("vulkan"))
print(values(params, optimizer) == of_steps("vulkan", [0, 1, 2, 3, 4, 7, 8, 9]))
"""
    )
    assert lines == ["True True", "True"]


def test_recover_goes_on_from_a_snapshot_that_was_asked_for():
    lines = on_vulkan(
        """
params, optimizer, step = make("vulkan")
for number in range(3):
    step(batch(number))
ow.snapshot()
step(batch(3))
ow.device("vulkan")._backend._device.destroy()
try:
    step(batch(4))
except ow.errors.DeviceLostError as error:
    print("recover()" in str(error))
print([one.name for one in ow.recover()], ow.recover())
step(batch(4))
print(values(params, optimizer) == of_steps("vulkan", [0, 1, 2, 4]))
"""
    )
    assert lines == ["True", "['vulkan'] []", "True"]


def test_without_a_snapshot_recover_says_so_and_changes_nothing():
    lines = on_vulkan(
        """
params, optimizer, step = make("vulkan")
step(batch(0))
ow.device("vulkan")._backend._device.destroy()
for call in (lambda: step(batch(1)), ow.recover):
    try:
        call()
    except ow.errors.DeviceLostError as error:
        print(error)
"""
    )
    assert "no snapshot of it: call optirs_web.snapshot()" in lines[1]


def test_parameters_that_are_gone_need_no_snapshot():
    lines = on_vulkan(
        """
import gc
make("vulkan")
gc.collect()
keep = ow.Parameter([1.0, 2.0], device="vulkan")
ow.snapshot()
ow.device("vulkan")._backend._device.destroy()
try:
    keep.tolist()
except ow.errors.DeviceLostError:
    ow.recover()
print(keep.tolist())
"""
    )
    assert lines == ["[1.0, 2.0]"]


def test_snapshot_every_is_a_number_of_calls():
    import optirs_web as ow

    with pytest.raises(ValueError, match="snapshot_every is a number of calls from 1, not 0"):
        ow.compile(lambda: None, recover=True, snapshot_every=0)
