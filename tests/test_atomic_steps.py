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
for number in range(25):
    signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.0007 * number)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        while True:
            step()
            done += 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    values = -w.numpy()
    torn += values.min() != values.max()
    lost += values[0] < done
    done = values[0]
print(torn, lost, done > 25)
"""


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_an_interrupt_neither_tears_a_tensor_nor_takes_back_steps(device, compiled):
    program = INTERRUPTED.format(device=device.name, compiled=compiled)
    assert run_python(program) == ["0 0 True"]


@pytest.fixture
def limited(device):
    """The device, without a limit again after the test."""
    yield device
    device.set_memory_limit(None)


@pytest.mark.parametrize("name", ["Muon", "Shampoo", "SOAP", "GaLore", "APOLLO", "CAME", "Adafactor", "LAMB"])
def test_without_memory_a_step_changes_nothing_and_can_be_tried_again(limited, name):
    rng = np.random.default_rng(0)
    start, grads = rng.standard_normal((40, 24)).astype(np.float32), rng.standard_normal((3, 40, 24)).astype(np.float32)

    def train(limit):
        param = ow.Parameter(start, device=limited)
        options = {"rank": 4} if name in ("GaLore", "APOLLO") else {}
        optimizer = getattr(ow.optim, name)([param], lr=0.01, **options)
        refused = 0
        for number, grad in enumerate(grads):
            grad = ow.tensor(grad, device=limited)
            if number and limit is not None:
                limited.synchronize()
                limited.trim()
                limited.set_memory_limit(limited.memory_stats().live_bytes + limit)
                try:
                    optimizer.step(grads=[grad])
                except OutOfDeviceMemoryError:
                    refused += 1
                    limited.set_memory_limit(None)
                    optimizer.step(grads=[grad])
                limited.set_memory_limit(None)
            else:
                optimizer.step(grads=[grad])
        return param.numpy(), refused

    want, _ = train(None)
    tried = [train(limit) for limit in (0, 5000, 12_000, 20_000)]
    for found, _ in tried:
        np.testing.assert_array_equal(found, want)
    if name in ("Muon", "Shampoo", "SOAP", "GaLore"):  # they need memory while they step
        assert tried[0][1] == 2
