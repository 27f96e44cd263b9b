"""Gradient checkpointing: the same gradients, less memory, the same random numbers twice."""

import gc

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import ops
from optirs_web.errors import OutOfDeviceMemoryError, UnsupportedError

WIDTH = 64


def blocks(device, count=8):
    """Weights of a deep stack, and a function that applies each of them."""
    rng = np.random.default_rng(0)
    return [
        ow.Parameter(rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8, device=device) for _ in range(count)
    ]


def through(x, weights, wrap):
    for weight in weights:
        x = wrap(lambda x, one=weight: ((x @ one).exp() * 0.1).relu() + x * 0.5, x)
    return (x * x).sum()


def plainly(function, x):
    return function(x)


def gradients_of(device, wrap, compiled):
    weights = blocks(device)
    x = ow.tensor(np.linspace(-1, 1, 8 * WIDTH, dtype=np.float32).reshape(8, WIDTH), device=device, requires_grad=True)

    def step():
        for param in (x, *weights):
            param.grad = None
        through(x, weights, wrap).backward()

    (ow.compile(step, device=device) if compiled else step)()
    return [param.grad.numpy() for param in (x, *weights)]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_gradients_are_those_without_it(device, compiled):
    for got, want in zip(
        gradients_of(device, ow.checkpoint, compiled), gradients_of(device, plainly, compiled), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_second_derivatives_go_through_it(device):
    x = ow.tensor([0.5, 1.5], device=device)
    cube = lambda x: ow.checkpoint(lambda x: x * x * x, x).sum()  # noqa: E731
    assert ow.grad(lambda x: ow.grad(cube)(x).sum())(x).tolist() == [3.0, 9.0]


def test_random_numbers_are_the_same_both_times(device):
    x = ow.ones((1000,), device=device, requires_grad=True)
    y = ow.checkpoint(lambda x: ops.dropout(x, 0.5, True) * 3.0, x)
    after = ow.rand((3,), device=device).tolist()
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
    assert ow.rand((3,), device=device).tolist() != after


def most_memory(device, wrap):
    weights, x = blocks(device), ow.ones((512, WIDTH), device=device)
    gc.collect()
    device.trim()
    with ow.memory_timeline(device) as timeline:
        before = device.memory_stats().live_bytes
        through(x, weights, wrap).backward()
        device.synchronize()
    return timeline.peak - before


def test_it_takes_less_memory(device):
    assert most_memory(device, ow.checkpoint) < 0.55 * most_memory(device, plainly)


def test_a_step_that_does_not_fit_says_what_would_make_it_fit_and_then_does(device, limited):
    weights, x = blocks(device, 16), ow.ones((512, WIDTH), device=device)
    limited(40 * x.size * 4)
    with pytest.raises(OutOfDeviceMemoryError, match=r"optirs_web\.checkpoint"):
        through(x, weights, plainly).backward()
    gc.collect()
    for weight in weights:
        weight.grad = None
    through(x, weights, ow.checkpoint).backward()
    assert all(np.isfinite(weight.grad.numpy()).all() for weight in weights)


def test_bad_calls_say_what_is_wrong():
    with pytest.raises(UnsupportedError, match="at least one tensor"):
        ow.checkpoint(lambda: 1.0)
    with pytest.raises(UnsupportedError, match="must return one tensor"):
        ow.checkpoint(lambda x: (x, x), ow.ones((2,), device="cpu"))
