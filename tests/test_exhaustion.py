"""A device without free memory: what is freed, what is computed again, and the error."""

import gc
import json
import re
import textwrap

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import OutOfDeviceMemoryError
from optirs_web.runtime.exhaustion import holders

SIDE = 64
MATRIX = SIDE * SIDE * 4  # bytes


def trains(optimizer, loss_of):
    """A training step over a matrix."""

    def train_step(x):
        optimizer.zero_grad()
        loss = loss_of(x)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


def perceptron(device, depth=8):
    """Its parameters, and a training step."""
    rng = np.random.default_rng(0)
    params = [ow.Parameter(rng.standard_normal((SIDE, SIDE), np.float32) * 0.1, device=device) for _ in range(depth)]

    def loss_of(x):
        for param in params:
            x = (x @ param).tanh()
        return (x * x).mean()

    return params, trains(ow.optim.AdamW(params, lr=1e-2), loss_of)


def blocks(device):
    """Return the parameters and the training step of residual blocks with normalization, attention and dropout."""
    ow.manual_seed(0)
    nn = ow.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.linear = nn.LayerNorm(SIDE), nn.Linear(SIDE, SIDE)
            self.attention, self.dropout = nn.MultiheadAttention(SIDE, 4), nn.Dropout(0.5)

        def forward(self, x):
            x = x + self.attention(x, x, x)[0]
            return x + self.dropout(self.linear(self.norm(x)).relu())

    model = nn.Sequential(*(Block() for _ in range(3))).to(device)
    params = list(model.parameters())
    return params, trains(ow.optim.SGD(params, lr=1e-2), lambda x: (model(x.reshape(4, 16, SIDE)) ** 2.0).mean())


X = np.random.default_rng(1).standard_normal((SIDE, SIDE), np.float32)


def live_bytes(device):
    """Return the bytes in use after everything unused is freed."""
    gc.collect()
    device.trim()
    return device.memory_stats().live_bytes


def trained(device, make, room=None):
    """Losses and parameters after four steps, and the step; recorded again within `room` bytes for its program."""
    params, train_step = make(device)
    step = ow.compile(train_step, device=device)
    losses = [step(X).item()]
    if room is not None:
        step.forget(device)
        device.set_memory_limit(live_bytes(device) + X.nbytes + 1024 + room)
    try:
        losses += [step(X).item() for _ in range(3)]
    finally:
        device.set_memory_limit(None)
    return losses, [param.numpy().tolist() for param in params], step


@pytest.mark.parametrize(("make", "share"), [(perceptron, 0.9), (perceptron, 0.5), (blocks, 0.8)])
def test_a_compiled_step_that_does_not_fit_computes_again_what_it_cannot_keep(device, make, share):
    losses, params, step = trained(device, make)
    program = step.program
    kept, dispatches = program.nbytes, program.dispatches + program.copies
    assert program.recomputed == 0
    again, params_again, step = trained(device, make, int(share * kept))
    program = step.program
    assert (again, params_again) == (losses, params)  # the same kernels over the same values
    assert program.nbytes <= share * kept + 1024
    assert program.recomputed == program.dispatches + program.copies - dispatches > 0
    actual = ow.explain(step)
    assert (actual.recomputed, actual.replayed.dispatches) == (program.recomputed, program.dispatches)
    assert f"{actual.recomputed} of these run twice" in str(actual)


def test_a_step_that_cannot_fit_says_what_it_needs_and_a_smaller_one_runs(device, limited):
    params, train_step = perceptron(device)
    step = ow.compile(train_step, device=device)
    step(X)
    step.forget(device)
    before = params[0].numpy().tolist()
    live = live_bytes(device)
    limited(X.nbytes + 2 * MATRIX)
    with pytest.raises(OutOfDeviceMemoryError) as caught:
        step(X)
    words = r"needs ([\d,]+) bytes, ([\d,]+) with recomputation, .* there is room for ([\d,]+)"
    expected, least, room = (int(group.replace(",", "")) for group in re.search(words, str(caught.value)).groups())
    assert expected > least == caught.value.asked > room
    assert caught.value.excess == least - room
    assert params[0].numpy().tolist() == before
    del caught
    assert live_bytes(device) == live
    assert ow.compile(lambda x: (x * 2.0).sum(), device=device)(X[:4]).item() == pytest.approx(
        2 * X[:4].sum(), abs=1e-3
    )
    device.set_memory_limit(None)
    assert np.isfinite(step(X).item())


def test_a_step_that_runs_no_more_gives_its_memory_to_another_and_is_recorded_again(device, limited):
    _, first = perceptron(device)
    _, second = perceptron(device)
    steps = [ow.compile(step_, device=device) for step_ in (first, second)]
    losses = []
    for step in steps:
        losses.append([step(X).item()])
        needed = step.program.nbytes
        step.forget(device)
    gc.collect()
    limited(needed + needed // 4 + 2 * X.nbytes)
    for _ in range(2):
        for step, its_losses in zip(steps, losses, strict=True):
            its_losses.append(step(X).item())
            assert step.program.recomputed == 0
    assert losses[0] == losses[1]
    assert [step.program is None for step in steps] == [True, False]


def test_memory_in_garbage_cycles_is_found_before_the_error(device, limited):
    class Cycle:
        pass

    gc.disable()
    try:
        limited(1 << 20)
        cycle = Cycle()
        cycle.itself, cycle.tensor = cycle, ow.zeros((150_000,), device=device)
        del cycle
        kept = ow.zeros((200_000,), device=device)
    finally:
        gc.enable()
    assert kept.size == 200_000


def test_the_error_names_the_largest_holders_by_operation(device, limited):
    x = ow.full((SIDE, SIDE), 0.5, device=device)
    optimizer = ow.optim.Adam([ow.Parameter(np.ones((2, SIDE, SIDE), np.float32), device=device)])
    kept = [x.exp() for _ in range(3)]
    step = ow.compile(lambda x: (x.exp() @ x).exp().sum(), device=device)
    step(x)
    limited(1 << 16)
    with ow.memory_timeline(device) as timeline:
        more = x.exp()
    kernel = timeline.events[0].kernel
    with pytest.raises(OutOfDeviceMemoryError) as caught:
        ow.zeros((1 << 20,), device=device)
    actual = holders(device)
    assert actual[kernel] >= 4 * MATRIX
    assert actual["(parameters, optimizers, inputs of steps)"] >= 3 * 2 * MATRIX
    assert "In use, by operation: " in str(caught.value)
    name, nbytes = actual.most_common(1)[0]
    assert f"{name} {nbytes:,}" in str(caught.value)
    del kept, more, optimizer


def test_eager_training_goes_on_after_an_error(device, limited):
    params, train_step = perceptron(device)
    x = ow.tensor(X, device=device)
    train_step(x)
    for param in params:
        param.grad = None
    live = live_bytes(device)
    limited(8 * MATRIX)
    with pytest.raises(OutOfDeviceMemoryError, match=r"optirs_web.checkpoint"):
        train_step(x)
    assert live_bytes(device) == live
    device.set_memory_limit(None)
    assert np.isfinite(train_step(x).item())


def test_a_page_computes_again_too_and_says_what_would_fit(browser_python):
    program = """
        import json, re
        import optirs_web as ow
        device = ow.device("webgpu")
        def trained(share):
            ow.manual_seed(0)
            params = [ow.Parameter(ow.randn((32, 32)) * 0.1) for _ in range(6)]
            optimizer = ow.optim.SGD(params, lr=0.1)
            def train_step(x):
                optimizer.zero_grad()
                for one in params:
                    x = (x @ one).tanh()
                loss = (x * x).mean()
                loss.backward()
                optimizer.step()
                return loss
            step, x = ow.compile(train_step), ow.ones((32, 32))
            losses = [step(x).item()]
            if share:
                device._try_last_resorts(0)  # frees what other tests have left in the page too
                device.set_memory_limit(device.memory_stats().live_bytes + 4096 + 512 + share)
            try:
                losses += [step(x).item() for _ in range(3)]
            finally:
                device.set_memory_limit(None)
            return losses, step.program.nbytes, step.program.recomputed
        losses, needed, _ = trained(0)
        again, less, recomputed = trained(int(needed * 0.8))
        try:
            message = str(trained(4096))
        except ow.errors.OutOfDeviceMemoryError as error:
            message = str(error)
        json.dumps([losses == again, less < needed, recomputed, message, trained(0)[0] == losses])
        """
    same, is_less, recomputed, message, after = json.loads(browser_python.run(textwrap.dedent(program)))
    assert (same, is_less, after) == (True, True, True)
    assert recomputed > 0
    assert "with recomputation" in message
