"""`nn.init`: the distributions of first values, and the same ones on every device."""

import math

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import nn
from optirs_web.errors import ShapeError


def drawn(function, shape, device="cpu", **arguments):
    ow.manual_seed(3)
    param = ow.Parameter(ow.zeros(shape, device=device))
    assert getattr(nn.init, function)(param, **arguments) is param
    return param.numpy().astype(np.float64)


def bounds(gain, fan):
    return -gain * math.sqrt(3 / fan), gain * math.sqrt(3 / fan)


@pytest.mark.parametrize(
    ("function", "shape", "arguments", "low", "high"),
    [
        ("uniform_", (64, 128), {"a": -0.5, "b": 2.0}, -0.5, 2.0),
        ("xavier_uniform_", (64, 128), {"gain": 2.0}, -2 * math.sqrt(6 / 192), 2 * math.sqrt(6 / 192)),
        ("xavier_uniform_", (32, 16, 3, 3), {}, -math.sqrt(6 / 432), math.sqrt(6 / 432)),
        ("kaiming_uniform_", (64, 128), {}, *bounds(math.sqrt(2), 128)),
        ("kaiming_uniform_", (64, 128), {"a": math.sqrt(5)}, -1 / math.sqrt(128), 1 / math.sqrt(128)),
        ("kaiming_uniform_", (32, 16, 3, 3), {"mode": "fan_out", "nonlinearity": "tanh"}, *bounds(5 / 3, 288)),
    ],
)  # fmt: skip
def test_uniform_first_values(function, shape, arguments, low, high):
    values = drawn(function, shape, **arguments)
    width = high - low
    assert low <= values.min() < low + 0.01 * width
    assert high - 0.01 * width < values.max() <= high
    deciles = np.quantile(values, np.linspace(0.1, 0.9, 9))
    assert np.abs(deciles - (low + width * np.linspace(0.1, 0.9, 9))).max() < 0.02 * width


@pytest.mark.parametrize(
    ("function", "shape", "arguments", "mean", "deviation"),
    [
        ("normal_", (64, 128), {"mean": 1.0, "std": 0.5}, 1.0, 0.5),
        ("xavier_normal_", (64, 128), {}, 0.0, math.sqrt(2 / 192)),
        ("kaiming_normal_", (64, 128), {"mode": "fan_out"}, 0.0, math.sqrt(2 / 64)),
        ("kaiming_normal_", (32, 16, 3, 3), {"a": 0.2}, 0.0, math.sqrt(2 / 1.04 / 144)),
    ],
)
def test_normal_first_values(function, shape, arguments, mean, deviation):
    values = (drawn(function, shape, **arguments) - mean) / deviation
    assert abs(values.mean()) < 0.04
    assert abs(values.std() - 1) < 0.03
    assert abs((values**4).mean() - 3) < 0.4


@pytest.mark.parametrize(
    ("mean", "std", "a", "b"), [(0.0, 1.0, -2.0, 2.0), (0.5, 2.0, 0.0, 1.0), (0.0, 0.02, -2.0, 2.0)]
)
def test_truncated_normal_first_values(device, mean, std, a, b):
    values = drawn("trunc_normal_", (100, 100), device, mean=mean, std=std, a=a, b=b)
    assert a <= values.min()
    assert values.max() <= b
    below = [0.5 * (1 + math.erf((x - mean) / std / math.sqrt(2))) for x in (a, b)]
    marks = np.linspace(values.min(), values.max(), 11)[1:-1]
    expected = [
        (0.5 * (1 + math.erf((x - mean) / std / math.sqrt(2))) - below[0]) / (below[1] - below[0]) for x in marks
    ]
    assert np.abs([(values < mark).mean() for mark in marks] - np.array(expected)).max() < 0.02


@pytest.mark.parametrize("shape", [(5, 5), (40, 7), (7, 40), (1, 1), (6, 2, 3, 3), (96, 96)])
def test_orthogonal_first_values(device, shape):
    q = drawn("orthogonal_", shape, device, gain=2.0).reshape(shape[0], -1)
    square = q @ q.T if shape[0] <= q.shape[1] else q.T @ q
    assert np.abs(square - 4 * np.eye(len(square))).max() < 4e-6


def test_constant_first_values(device):
    assert (drawn("constant_", (2, 3), device, val=7.0) == 7.0).all()
    assert (drawn("ones_", (2, 3), device) == 1.0).all()
    assert (drawn("zeros_", (2, 3), device) == 0.0).all()
    assert (drawn("eye_", (2, 3), device) == np.eye(2, 3)).all()
    tensor = ow.zeros((2,), device=device)
    assert nn.init.ones_(tensor).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("function", ["xavier_uniform_", "kaiming_normal_", "orthogonal_", "eye_"])
def test_fans_need_two_axes(function):
    with pytest.raises(ShapeError, match=r"two axes|a matrix"):
        drawn(function, (3,))


def test_unknown_gains_and_modes_are_named():
    with pytest.raises(ValueError, match="nonlinearity must be one of"):
        nn.init.calculate_gain("swish")
    with pytest.raises(ValueError, match="mode must be"):
        drawn("kaiming_uniform_", (2, 2), mode="fan")


def test_a_seed_gives_the_same_weights_on_every_device(open_device):
    def weights(device):
        ow.manual_seed(5)
        net = nn.Sequential(
            nn.Linear(4, 3, device=device),
            nn.Conv2d(4, 2, 3, device=device),
            nn.Embedding(5, 4, device=device),
            nn.MultiheadAttention(4, 2, device=device),
        )
        return [param.numpy() for param in net.parameters()]

    for weight, other in zip(weights(open_device("cpu")), weights(open_device("vulkan")), strict=True):
        assert np.abs(weight - other).max() <= 1e-6 * np.abs(weight).max()
        assert weight.any() or not other.any()
