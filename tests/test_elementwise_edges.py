"""Values and gradients where formulas break: zeros, infinities, NaN, ties. They are torch's, if not said otherwise."""

import math

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import ops
from optirs_web.errors import ShapeError, UnsupportedError

INF, NAN = math.inf, math.nan
EDGES = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN]

FUNCTIONS = {
    "log": ([-INF, -INF, 0, NAN, INF, NAN, NAN], [INF, -INF, 1, -1, 0, -0.0, NAN]),
    "log1p": ([0, 0, math.log(2), -INF, INF, NAN, NAN], [1, 1, 0.5, INF, 0, -0.0, NAN]),
    "expm1": ([0, 0, math.expm1(1), math.expm1(-1), INF, -1, NAN], [1, 1, math.e, 1 / math.e, INF, 0, NAN]),
    "sqrt": ([0, 0, 1, NAN, INF, NAN, NAN], [INF, -INF, 0.5, NAN, 0, NAN, NAN]),
    "reciprocal": ([INF, -INF, 1, -1, 0, 0, NAN], [-INF, -INF, -1, -1, 0, 0, NAN]),
    "square": ([0, 0, 1, 1, INF, INF, NAN], [0, 0, 2, -2, INF, -INF, NAN]),
    "abs": ([0, 0, 1, 1, INF, INF, NAN], [0, 0, 1, -1, 1, -1, 0]),
    "sin": ([0, 0, math.sin(1), -math.sin(1), NAN, NAN, NAN], [1, 1, math.cos(1), math.cos(1), NAN, NAN, NAN]),
    "erf": ([0, 0, math.erf(1), -math.erf(1), 1, -1, NAN], [1.1283792, 1.1283792, 0.4151075, 0.4151075, 0, 0, NAN]),
    "tanh": ([0, 0, math.tanh(1), -math.tanh(1), 1, -1, NAN], [1, 1, 0.4199743, 0.4199743, 0, 0, NAN]),
    "sigmoid": ([0.5, 0.5, 0.7310586, 0.2689414, 1, 0, NAN], [0.25, 0.25, 0.1966119, 0.1966119, 0, 0, NAN]),
    "relu": ([0, 0, 1, 0, INF, 0, NAN], [0, 0, 1, 0, 1, 0, 1]),
    "leaky_relu": ([0, 0, 1, -0.01, INF, -INF, NAN], [0.01, 0.01, 1, 0.01, 1, 0.01, 0.01]),
    "softplus": (
        [0.6931472, 0.6931472, 1.3132617, 0.3132617, INF, 0, NAN],
        [0.5, 0.5, 0.7310586, 0.2689414, 1, 0, NAN],
    ),
    "gelu": ([0, 0, 0.8413447, -0.1586553, INF, NAN, NAN], [0.5, 0.5, 1.0833155, -0.0833155, NAN, NAN, NAN]),
    "silu": ([0, 0, 0.7310586, -0.2689414, INF, NAN, NAN], [0.5, 0.5, 0.9276706, 0.0723295, NAN, NAN, NAN]),
}


def tensor(values, device, requires_grad=True):
    return ow.tensor(np.asarray(values, np.float32), device=device, requires_grad=requires_grad)


def derivative(result, *inputs):
    return [grad.numpy() for grad in ow.gradients(result.sum(), inputs)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_an_element(name, device):
    values, slopes = FUNCTIONS[name]
    x = tensor(EDGES, device)
    y = getattr(ops, name)(x)
    np.testing.assert_allclose(y.numpy(), values, rtol=1e-6)
    np.testing.assert_allclose(*derivative(y, x), slopes, rtol=1e-6)


@pytest.mark.parametrize(
    ("exponent", "powers", "slopes"),
    [
        (0, [1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0]),
        (1, EDGES, [1, 1, 1, 1, 1, 1, 1]),
        (2, [0, 0, 1, 1, INF, INF, NAN], [0, -0.0, 2, -2, INF, -INF, NAN]),
        (3, [0, -0.0, 1, -1, INF, -INF, NAN], [0, 0, 3, 3, INF, INF, NAN]),
        (-1, [INF, -INF, 1, -1, 0, -0.0, NAN], [-INF, -INF, -1, -1, 0, 0, NAN]),
        (0.5, [0, 0, 1, NAN, INF, INF, NAN], [INF, INF, 0.5, NAN, 0, 0, NAN]),
    ],
)
def test_powers_by_a_number_and_by_a_tensor(exponent, powers, slopes, device):
    for how in (float, lambda number: ow.full((), number, device=device)):
        x = tensor(EDGES, device)
        y = x ** how(exponent)
        np.testing.assert_allclose(y.numpy(), powers, rtol=1e-6)
        np.testing.assert_allclose(*derivative(y, x), slopes, rtol=1e-6)


def test_the_gradient_by_an_exponent_is_0_where_the_base_is_0(device):
    exponents = [0.0, 2.0, -1.0]
    for base in (0.0, ow.zeros((), device=device)):
        y = tensor(exponents, device)
        np.testing.assert_array_equal(*derivative(base**y, y), [0, 0, -INF])


def test_mixed_second_derivatives_of_a_power_do_not_vanish_at_exponent_0(device):
    x, y = tensor([2.0], device), tensor([0.0], device)
    (by_base,) = ow.gradients((x**y).sum(), [x], create_graph=True)
    np.testing.assert_array_equal(*derivative(by_base, y), [0.5])


def test_the_larger_and_the_smaller_share_ties_and_let_nan_through(device):
    left, right = [1.0, 2.0, 3.0, NAN, 1.0, -INF], [2.0, 2.0, 1.0, 1.0, NAN, -INF]
    a, b = tensor(left, device), tensor(right, device)
    np.testing.assert_array_equal(ow.maximum(a, b).numpy(), [2, 2, 3, NAN, NAN, -INF])
    np.testing.assert_array_equal(ow.minimum(a, b).numpy(), [1, 2, 1, NAN, NAN, -INF])
    np.testing.assert_array_equal(derivative(ow.maximum(a, b), a, b), [[0, 0.5, 1, 1, 1, 0.5], [1, 0.5, 0, 1, 1, 0.5]])
    np.testing.assert_array_equal(derivative(ow.minimum(a, b), a, b), [[1, 0.5, 0, 1, 1, 0.5], [0, 0.5, 1, 1, 1, 0.5]])


def test_clip_passes_the_gradient_at_its_bounds(device):
    x = tensor([-2.0, -1.0, 0.0, 1.0, 2.0, NAN], device)
    np.testing.assert_array_equal(x.clip(-1.0, 1.0).numpy(), [-1, -1, 0, 1, 1, NAN])
    np.testing.assert_array_equal(*derivative(x.clip(-1.0, 1.0), x), [0, 1, 1, 1, 0, 0])
    np.testing.assert_array_equal(x.clip(1.0, -1.0).numpy(), [-1, -1, -1, -1, -1, NAN])
    low, high = tensor(-1.0, device), tensor(1.0, device)
    assert [tensor.tolist() for tensor in derivative(x.clip(low, high), low, high)] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "values", "slopes"),
    [
        ("max", [3, NAN, -INF, 0], [[0, 0.5, 0.5], [NAN] * 3, [1 / 3] * 3, [0.5, 0.5, 0]]),
        ("min", [1, NAN, -INF, -1], [[1, 0, 0], [NAN] * 3, [1 / 3] * 3, [0, 0, 1]]),
    ],
)
def test_extremes_share_their_gradient(name, values, slopes, device):
    x = tensor([[1, 3, 3], [1, NAN, 2], [-INF] * 3, [0.0, -0.0, -1]], device)
    y = getattr(x, name)(axis=1)
    np.testing.assert_array_equal(y.numpy(), values)
    np.testing.assert_allclose(*derivative(y, x), slopes, rtol=1e-6)


@pytest.mark.parametrize("length", [5, 4096, 4097, 9000])
def test_places_are_those_of_the_first_over_any_length(length, device):
    values = np.zeros((2, length, 2), np.float32)
    values[0, length // 2 :, 0] = 1
    values[1, -1, 1] = -1
    values[1, length // 3, 0] = NAN
    for name in ("argmax", "argmin"):
        actual = getattr(tensor(values, device), name)
        np.testing.assert_array_equal(actual(1).numpy(), getattr(values, name)(1))
        assert actual().item() == getattr(values, name)()


@pytest.mark.parametrize("dtype", ["int32", "uint32", "bool"])
def test_extremes_of_integers(dtype, device):
    values = np.array([[3, 0, 1], [0, 0, 1]]) > 0 if dtype == "bool" else np.array([[3, 0, 7], [2, 2, 2]], dtype)
    x = ow.tensor(values, device=device, dtype=dtype)
    for name in ("max", "min", "argmax", "argmin"):
        np.testing.assert_array_equal(getattr(x, name)(1).numpy(), getattr(values, name)(1))


def test_softmax_of_rows_with_infinities(device):
    rows = [[1, -INF, 1], [-INF, -INF, -INF], [INF, 0, 1], [NAN, 0, 1]]
    expected = np.array([[0.5, 0, 0.5], *[[NAN] * 3] * 3])
    x = tensor(rows, device)
    np.testing.assert_array_equal(x.softmax().numpy(), expected)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(x.log_softmax().numpy(), np.log(expected), rtol=1e-6)
    np.testing.assert_array_equal(x.logsumexp(-1).numpy()[1:], [-INF, INF, NAN])


def test_the_spread_of_what_does_not_vary(device):
    x = tensor([[2.0, 2.0], [1.0, 3.0]], device)
    np.testing.assert_allclose(*derivative(x.std(1), x), [[0, 0], [-0.70710678, 0.70710678]], rtol=1e-6)
    assert math.isnan(x[0, :1].var().item())


def test_nothing_is_the_largest_of_nothing(device):
    empty = tensor(np.zeros((2, 0)), device)
    for call in (empty.max, empty.argmin, lambda: empty.max(1), empty.logsumexp):
        with pytest.raises(ShapeError, match="there are no elements"):
            call()
    assert empty.max(axis=0).shape == (0,)


COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_know_nan_infinities_and_zeros(name, device):
    left, right = (array.ravel() for array in np.meshgrid(np.float32(EDGES), np.float32(EDGES)))
    ours, numpys = getattr(ops, name), getattr(np, name)
    a, b = tensor(left, device), tensor(right, device)
    assert ours(a, b).dtype == "bool"
    np.testing.assert_array_equal(ours(a, b).numpy(), numpys(left, right))
    np.testing.assert_array_equal(ours(a, 1).numpy(), numpys(left, 1))
    np.testing.assert_array_equal(ours(1, a).numpy(), numpys(1, left))
    integers = ow.tensor([-1, 0, 1, 2], device=device)
    for number in (1, 0.5, INF, 1 << 40):
        np.testing.assert_array_equal(ours(integers, number).numpy(), numpys([-1, 0, 1, 2], number))


def test_comparisons_are_operators_and_logic_joins_them(device):
    x = ow.tensor([0.0, 1.0, 2.0, 3.0], device=device)
    assert ((x >= 1) & (x < 3)).tolist() == [False, True, True, False]
    assert (~(x == 1) ^ ((x != 2) | (x > 9))).tolist() == [False, True, True, False]
    assert (x == None) is False  # noqa: E711
    with pytest.raises(UnsupportedError, match="is for bools"):
        _ = x & x
    with pytest.raises(UnsupportedError, match="no common type"):
        _ = x.astype("int32") == x.astype("uint32")
    with pytest.raises(UnsupportedError, match="condition of bools"):
        ow.where(x, x, x)


def test_where_lets_no_gradient_through_to_what_was_not_taken(device):
    x = tensor([0.0, 4.0], device)
    y = ow.where(x > 0, x.sqrt(), 0.0)
    np.testing.assert_array_equal(y.numpy(), [0, 2])
    np.testing.assert_array_equal(ow.where(x > 0, 1, ow.tensor([5, 6], device=device)).tolist(), [5, 1])
    safe = ow.where(x > 0, ow.where(x > 0, x, 1.0).sqrt(), 0.0)
    np.testing.assert_array_equal(*derivative(safe, x), [0, 0.25])


def test_conversions_saturate_and_nan_is_0(device):
    x = tensor([-1.9, 0.5, 2147483648.0, -3e9, 4294967040.0, 5e9, INF, -INF, NAN], device)
    largest, smallest = (1 << 31) - 1, -(1 << 31)
    assert x.int().tolist() == [-1, 0, largest, smallest, largest, largest, largest, smallest, 0]
    words = (1 << 32) - 1
    assert x.astype("uint32").tolist() == [0, 0, 1 << 31, 0, 4294967040, words, words, 0, 0]
    assert x.bool().tolist() == [True] * 9
    assert ow.tensor([-1, 2], device=device).astype("uint32").tolist() == [words, 2]
    assert ow.tensor([True, False], device=device).float().tolist() == [1.0, 0.0]
    assert x.float() is x
