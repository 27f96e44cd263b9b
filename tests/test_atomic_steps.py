"""A step is done as a whole or not at all: when it is interrupted, and when memory runs out in the middle of it."""

import numpy as np
import pytest
from processes import run_python

import optirs_web as ow
from optirs_web.errors import OutOfDeviceMemoryError

INTERRUPTED = """
import signal
import numpy as np
import optirs_web as ow

ON, COMPILED = {device!r}, {compiled}
ow.device(ON)
w = ow.Parameter(np.zeros(50_000), device=ON)
optimizer = ow.optim.SGD([w], lr=1.0)
grad = ow.ones(50_000, device=ON)
step = lambda: optimizer.step(grads=[grad])
if COMPILED:
    step = ow.compile(step, device=ON)
step()
done, torn, lost = 1, 0, 0
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
for number in range(25):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.0007 * number)
        while True:
            step()
            done += 1
    except KeyboardInterrupt:
        pass
    values = -w.numpy()
    torn += values.min() != values.max()
    lost += values[0] < done
    done = values[0]
print(torn, lost, done > 25)
"""


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_an_interrupt_neither_tears_a_tensor_nor_takes_back_steps(device, compiled):
    program = INTERRUPTED.format(device=device.name, compiled=compiled)
    assert run_python(program) == ["0 0 True"]


WRAPPED = """
import signal
import numpy as np
import optirs_web as ow

w = ow.Parameter(np.full(2000, 3.0), device={device!r})
grad = ow.ones(2000, device={device!r})
inner = ow.optim.SGD([w], lr=1.0 if {name!r} == "Lookahead" else 0.0)
optimizer = ow.optim.Lookahead(inner, k=5) if {name!r} == "Lookahead" else ow.optim.SAM(inner, rho=5.0)

def closure():
    w.grad = grad
    return w

saved = []
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
if {saves}:
    signal.signal(signal.SIGINT, lambda *_: saved.append(optimizer.state_dict()["state"] and w.numpy()))
for number in range(30):
    before = len(saved)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.0005 * number)
        while len(saved) == before:
            optimizer.step(closure)
    except KeyboardInterrupt:
        pass
values = w.numpy()
print(values.min() == values.max(), len(saved) == (30 if {saves} else 0))
if {name!r} == "Lookahead":
    since = int(next(iter(optimizer.state_dict()["state"].values()))["slow_step"])
    rounds = (3.0 - values[0] - since) / 2.5  # five steps of 1, and half of the way back
    print(abs(rounds - round(rounds)) < 1e-3)
else:
    print(values[0] == 3.0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("saves", [False, True], ids=["interrupted", "a handler that saves"])
@pytest.mark.parametrize("name", ["Lookahead", "SAM"])
def test_steps_that_belong_together_are_not_parted(device, name, saves):
    program = WRAPPED.format(device=device.name, name=name, saves=saves)
    assert run_python(program) == ["True True", "True"]


@pytest.mark.parametrize("name", ["Muon", "Shampoo", "SOAP", "GaLore"])  # they need memory while they step
def test_without_memory_a_step_changes_nothing_and_can_be_tried_again(device, limited, name):
    rng = np.random.default_rng(0)
    start, grads = rng.standard_normal((40, 24)).astype(np.float32), rng.standard_normal((3, 40, 24)).astype(np.float32)
    options = {"rank": 4} if name == "GaLore" else {}

    def train(limit):
        param = ow.Parameter(start, device=device)
        optimizer = getattr(ow.optim, name)([param], lr=0.01, **options)
        refused = 0
        for grad in grads:
            given = [ow.tensor(grad, device=device)]
            if optimizer.state[param] and limit is not None:
                device.trim()
                limited(limit)
                before = device.stats.dispatches
                try:
                    optimizer.step(grads=given)
                    given = None
                except OutOfDeviceMemoryError:
                    assert device.stats.dispatches == before
                    refused += 1
                device.set_memory_limit(None)
            if given:
                optimizer.step(grads=given)
        return param.numpy(), refused

    want, _ = train(None)
    for limit in (0, 5000, 12_000, 20_000):
        actual, refused = train(limit)
        np.testing.assert_array_equal(actual, want)
        assert refused == len(grads) or limit


def test_a_mask_of_a_projection_may_read(device):
    w = ow.Parameter([2.0, 3.0], device=device)
    box = ow.optim.projections.box(-1.0, 0.5, mask=lambda param: param.tolist()[0] > 0)
    ow.optim.SGD([w], lr=0.1, transforms=[box]).step(grads=[[1.0, 1.0]])
    assert w.tolist() == [0.5, 0.5]


def test_statistics_may_be_read_and_computed_as_anything_else(device):
    """The work of a callable that a step calls is not part of the work that is done as a whole."""
    w = ow.Parameter([[1.0, 2.0]], device=device)
    seen = []

    def statistics():
        kept = []
        for number in (1.0, 2.0, 3.0):
            x = ow.tensor([[number, 0.0]], device=device)
            kept.append(x * 3.0)
            del x
        seen.extend(tensor.tolist() for tensor in kept)
        return [(kept[0], ow.tensor([[1.0]], device=device))]

    ow.optim.KFAC([w], lr=0.1, statistics=statistics).step(grads=[[[1.0, 1.0]]])
    assert seen == [[[3.0, 0.0]], [[6.0, 0.0]], [[9.0, 0.0]]]
