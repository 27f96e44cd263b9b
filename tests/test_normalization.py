"""Normalization: running statistics, accuracy, dispatches, and bad calls. The table has values and derivatives."""

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import ShapeError, UnsupportedError
from optirs_web.ops import batch_norm, layer_norm


def random(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_running_statistics_move_as_in_torch(device, torch, is_compiled):
    mean, variance = ow.zeros((3,), device=device), ow.ones((3,), device=device)
    theirs = torch.nn.BatchNorm2d(3, momentum=0.3)

    def step(x):
        return batch_norm(x, mean, variance, training=True, momentum=0.3)

    call = ow.compile(step, device=device) if is_compiled else step
    for seed in range(3):
        batch = random((4, 3, 2, 2), seed) * 2 + 1
        got = call(ow.tensor(batch, device=device)).numpy()
        want = theirs(torch.tensor(batch)).detach().numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mean.numpy(), theirs.running_mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(variance.numpy(), theirs.running_var.numpy(), rtol=1e-5)


def test_running_statistics_stay_outside_of_training(device):
    mean, variance = ow.zeros((3,), device=device), ow.ones((3,), device=device)
    batch_norm(ow.tensor(random((4, 3)) + 5, device=device), mean, variance)
    assert mean.tolist() == [0.0] * 3
    assert variance.tolist() == [1.0] * 3


def test_a_large_mean_costs_layer_norm_no_digits(device):
    x = random((3, 1000)) + np.float32(1000)
    exact = x.astype(np.float64)
    want = (exact - exact.mean(1, keepdims=True)) / exact.std(1, keepdims=True)
    got = layer_norm(ow.tensor(x, device=device), 1000, eps=0.0).numpy()
    assert np.abs(got - want).max() < 1e-4  # the mean is off by half a unit of its last place, 3e-5


@pytest.mark.parametrize(("values", "eps"), [(1e-20, 0.0), (3e18, 1e-5)])
def test_the_gradient_of_tiny_and_huge_values_is_finite_and_right(device, values, eps):
    x = ow.Parameter(random((4, 33)) * np.float32(values), device=device)
    g = random((4, 33), 1)
    layer_norm(x, 33, eps=eps).backward(g * np.float32(values))
    exact = x.numpy().astype(np.float64)
    scale = 1 / np.sqrt(exact.var(1, keepdims=True) + eps)
    n = (exact - exact.mean(1, keepdims=True)) * scale
    want = values * scale * (g - g.mean(1, keepdims=True) - n * (g * n).mean(1, keepdims=True))
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-4, atol=1e-5)


def test_equal_values_are_normalized_to_the_bias(device):
    x = ow.Parameter(np.full((2, 4), 3.0, np.float32), device=device)
    y = layer_norm(x, 4, bias=ow.ones((4,), device=device))
    y.backward(random((2, 4)))
    assert y.tolist() == [[1.0] * 4] * 2
    assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize("columns", [257, 512])
def test_layer_norm_by_numpy_subtracts_what_rounding_left_of_the_mean(columns):
    x = np.full((2, columns), 1.2345e10, np.float32)
    weight = ow.tensor(np.linspace(-1, 2, columns, dtype=np.float32), device="cpu")
    y = layer_norm(ow.tensor(x, device="cpu"), columns, weight, ow.ones((columns,), device="cpu"))
    assert (y.numpy() == 1).all()


def test_layer_norm_by_numpy_has_nan_where_arithmetic_has():
    weight = np.array([1, np.inf, 0, -1], np.float32)
    x = np.array([[1, 2, 3, 5], [1e30, 2e30, -1e30, 0], [np.inf, 0, 1, 2]], np.float32)
    y = layer_norm(ow.tensor(x, device="cpu"), 4, ow.tensor(weight, device="cpu"), ow.ones((4,), device="cpu")).numpy()
    assert y[0, 1] == -np.inf
    assert np.isfinite(y[0, [0, 2, 3]]).all()
    assert (y[1, [0, 2, 3]] == 1).all()  # the variance is infinite
    assert np.isnan(y[2]).all()


def test_layer_norm_takes_one_dispatch_and_few_for_its_gradients(device):
    x, weight, bias = (ow.Parameter(random(shape), device=device) for shape in ((5, 8), (8,), (8,)))
    g = ow.ones((5, 8), device=device)
    before = device.stats.copy()
    y = layer_norm(x, 8, weight, bias)
    assert (device.stats - before).dispatches == 1
    before = device.stats.copy()
    y.backward(g)
    assert (device.stats - before).dispatches <= 4  # x; weight and bias together, and both in order


def test_long_batches_add_up_in_chunks(device):
    x, weight, bias = (ow.Parameter(random(shape), device=device) for shape in ((1000, 3), (3,), (3,)))
    g = random((1000, 3), 1)
    layer_norm(x, 3, weight, bias, eps=1e-3).backward(g)
    exact = x.numpy().astype(np.float64)
    normalized = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(weight.grad.numpy(), (g * normalized).sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(bias.grad.numpy(), g.sum(0, dtype=np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: layer_norm(x, 3), ShapeError, "over the last axes"),
        (lambda x: layer_norm(x, 4, ow.ones((3,), device="cpu")), ShapeError, "over the last axes"),
        (lambda x: layer_norm(x, ()), ShapeError, "over the last axes"),
        (lambda x: layer_norm(ow.arange(4, device="cpu"), 4), UnsupportedError, "float32"),
        (lambda x: batch_norm(x, None, None), ValueError, "needs running_mean"),
        (lambda x: batch_norm(x, None, None, ow.ones((3,), device="cpu"), training=True), ShapeError, "channels"),
        (lambda x: batch_norm(ow.ones((1, 4), device="cpu"), None, None, training=True), ShapeError, "more than one"),
        (lambda x: batch_norm(ow.ones((4,), device="cpu"), None, None, training=True), ShapeError, "channels"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call(ow.zeros((2, 4), device="cpu"))
