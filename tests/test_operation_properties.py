"""Properties of operations that hold for all shapes, axes, strides and values, tried at random."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from hypothesis.extra import numpy as arrays

TINY = np.finfo(np.float32).tiny  # devices may give 0 for what is smaller
LARGEST = float(np.finfo(np.float32).max)

at_random = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])

SIZES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def numbers_like(shape, seed=0):
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


def of_pair(pair):
    """As numerics reads it: the shape, and the values."""
    shape, values = pair
    return np.asarray(values).reshape(np.asarray(shape, int))


def assert_near(got, want, relative, absolute=0.0, what="values"):
    """As float32 holds it: beyond its largest number is infinity, below its smallest normal one may be 0."""
    want = np.asarray(want, np.float64)
    assert got.shape == want.shape
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= relative * np.abs(want) + absolute + TINY
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    beyond = np.isinf(got) & (np.abs(want) >= LARGEST * (1 - relative)) & (np.sign(got) == np.sign(want))
    wrong = ~(near | same | beyond)
    assert not wrong.any(), f"{what}: {got[wrong][:5]}, not {want[wrong][:5]}"


# Functions of each element, from the smallest normal number to infinity and NaN.

erf, erfc = np.vectorize(math.erf, otypes=[float]), np.vectorize(math.erfc, otypes=[float])

FUNCTIONS = {
    "abs": np.abs,
    "cos": np.cos,
    "erf": erf,
    "exp": np.exp,
    "expm1": np.expm1,
    "gelu": lambda x: x / 2 * erfc(-x * math.sqrt(0.5)),
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "log": np.log,
    "log1p": np.log1p,
    "negate": np.negative,
    "reciprocal": lambda x: 1 / x,
    "relu": lambda x: np.maximum(x, 0),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sin": np.sin,
    "softplus": lambda x: np.logaddexp(x, 0),
    "sqrt": np.sqrt,
    "square": np.square,
    "tanh": np.tanh,
}

# x times a factor that may be taken for 0, where that is below the smallest normal number.
OF_TINY = {"gelu", "silu"}

VALUES = st.floats(width=32, allow_subnormal=False)


@at_random
@given(values=st.lists(VALUES | st.floats(-20, 20, width=32, allow_subnormal=False), min_size=1, max_size=40))
@example([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, LARGEST, -LARGEST, float(TINY), -float(TINY)])
@example([88.7, 88.8, -87.3, -87.4, -103.0, 1e-7, -1e-7, 3.1415927, 1e6, 1e20, 2.0**24, 0.99999994, 1.0000001])
def test_functions_of_each_element_equal_numpys_for_all_values(numerics, values):
    x = np.array(values, np.float32)
    actual = numerics("calculated", list(FUNCTIONS), x)
    with np.errstate(all="ignore"):
        for (name, reference), got in zip(FUNCTIONS.items(), map(of_pair, actual), strict=True):
            absolute = abs(np.log(TINY)) * TINY if name in OF_TINY else 0.0
            assert_near(got, reference(x.astype(np.float64)), 1e-6, absolute, name)


@at_random
@given(values=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=40))
def test_arithmetic_of_all_values_is_numpys(numerics, values):
    a, b = np.array(values, np.float32).T.copy()
    with np.errstate(all="ignore"):
        exact_a, exact_b = a.astype(np.float64), b.astype(np.float64)
        wants = [exact_a + exact_b, exact_a - exact_b, exact_a * exact_b, exact_a / exact_b]
    for got, want in zip(numerics("arithmetic", a, b), wants, strict=True):
        assert_near(np.asarray(got, np.float64), want, 1.5e-7)


# Shapes.


@st.composite
def broadcastable(draw):
    pair = draw(arrays.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0, max_side=4))
    return pair.input_shapes


@at_random
@given(shapes=broadcastable())
def test_gradients_of_what_was_broadcast_are_sums(numerics, shapes):
    a, b = (numbers_like(shape, seed) for seed, shape in enumerate(shapes))
    result_shape = np.broadcast_shapes(*shapes)
    if math.prod(result_shape) == 0:
        return  # arrays without elements lose their shape on the way to a page; the table of operations has them
    weights = numbers_like(result_shape, 2)
    value, of_a, of_b = map(of_pair, numerics("broadcast", a, b, weights))
    exact_a, exact_b, w = (array.astype(np.float64) for array in (a, b, weights))
    assert_near(value, exact_a * exact_b + exact_b - exact_a, 1e-6, 1e-6)

    def summed(g, shape):
        g = g.sum(tuple(range(g.ndim - len(shape))))
        return g.sum(tuple(axis for axis, size in enumerate(shape) if size == 1), keepdims=True).reshape(shape)

    assert_near(of_a, summed(w * (exact_b - 1), a.shape), 1e-6, 2e-5)
    assert_near(of_b, summed(w * (exact_a + 1), b.shape), 1e-6, 2e-5)


@st.composite
def reductions(draw):
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=4, max_side=5))
    order = draw(st.permutations(range(len(shape))))
    axes = draw(st.none() | st.lists(st.sampled_from(range(len(shape))), unique=True, min_size=1)) if shape else None
    return shape, list(order), axes, draw(st.booleans())


@at_random
@given(call=reductions())
def test_reductions_of_any_axes_of_any_walk_equal_numpys(numerics, call):
    shape, order, axes, keepdims = call
    values = numbers_like(shape)
    exact = values.astype(np.float64).transpose(order)
    named = {"axis": None if axes is None else tuple(axes), "keepdims": keepdims}
    names = ["sum", "mean", "max", "min", "logsumexp"]
    actual = numerics("reduced", names, values, order, axes, keepdims)
    wants = [exact.sum(**named), exact.mean(**named), exact.max(**named), exact.min(**named)]
    wants.append(np.log(np.exp(exact).sum(**named)))
    for got, want in zip(map(of_pair, actual), wants, strict=True):
        assert_near(got, want, 1e-6, 1e-6 * max(1, np.abs(exact).sum() / max(1, np.size(want))))


@st.composite
def wanderings(draw):
    """Draw a shape, and steps from one strided view to the next, as arguments of numerics."""
    shape = first = draw(arrays.array_shapes(min_dims=1, max_dims=4, max_side=4))
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["permute", "reshape", "broadcast", "slice", "flip"]))
        if kind == "permute":
            argument = list(draw(st.permutations(range(len(shape)))))
            shape = tuple(shape[axis] for axis in argument)
        elif kind == "reshape":
            argument = [-1] if draw(st.booleans()) else [math.prod(shape[:-1]), shape[-1]]
            shape = (math.prod(shape),) if argument == [-1] else tuple(argument)
        elif kind == "broadcast":
            if len(shape) == 4:
                continue
            shape = (draw(st.integers(1, 3)), *shape)
            argument = list(shape)
        elif kind == "slice":
            argument = [[draw(st.integers(0, size - 1)), None, draw(st.integers(1, 3))] for size in shape]
            shape = tuple(len(range(*slice(*part).indices(size))) for part, size in zip(argument, shape, strict=True))
        else:
            argument = draw(st.integers(0, len(shape) - 1))
        steps.append([kind, argument])
    return first, steps


IN_NUMPY = {
    "permute": lambda x, order: x.transpose(order),
    "reshape": lambda x, shape: x.reshape(shape),
    "broadcast": lambda x, shape: np.broadcast_to(x, shape),
    "slice": lambda x, parts: x[tuple(slice(*part) for part in parts)],
    "flip": lambda x, axis: np.flip(x, axis),
}


@at_random
@given(wandering=wanderings())
def test_walks_of_walks_give_the_elements_that_numpy_gives_and_put_gradients_back(numerics, wandering):
    shape, steps = wandering
    values = numbers_like(shape)
    places = np.arange(values.size).reshape(shape)
    for name, argument in steps:
        places = IN_NUMPY[name](places, argument)
    weights = numbers_like(places.shape, 1)
    value, gradient = map(of_pair, numerics("wandered", steps, values, weights))
    np.testing.assert_array_equal(value, values.reshape(-1)[places])
    want = np.bincount(places.reshape(-1), weights.reshape(-1).astype(np.float64), values.size).reshape(shape)
    assert_near(gradient, want, 1e-6, 1e-5)


@st.composite
def products(draw):
    batches = draw(arrays.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3)).input_shapes
    rows, inner, columns = (draw(st.integers(1, 6) | st.just(33)) for _ in range(3))
    swapped = [draw(st.booleans()) for _ in range(2)]
    matrices = [(rows, inner), (inner, columns)]
    shapes = [
        (*batch, *(matrix[::-1] if is_swapped else matrix))
        for batch, matrix, is_swapped in zip(batches, matrices, swapped, strict=True)
    ]
    return shapes, swapped


@at_random
@given(product=products())
def test_products_of_batches_of_transposed_matrices_equal_numpys(numerics, product):
    shapes, swapped = product
    a, b = (numbers_like(shape, seed) for seed, shape in enumerate(shapes))
    products = numerics("multiplied", a, b, swapped)
    exact = [
        (array.swapaxes(-1, -2) if is_swapped else array).astype(np.float64)
        for array, is_swapped in zip((a, b), swapped, strict=True)
    ]
    inner = exact[0].shape[-1]
    for got in products:
        assert_near(of_pair(got), exact[0] @ exact[1], 1e-6, 2e-6 * math.sqrt(inner))


@pytest.mark.parametrize("axis", [0, -1])
def test_softmax_is_a_distribution_whatever_is_added(numerics, axis):
    for shift in (0, 1e4, -1e4):
        x = numbers_like((5, 7)) * 10 + np.float32(shift)
        got = np.asarray(numerics("distribution", x, axis), np.float64)
        powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
        assert_near(got, powers / powers.sum(axis, keepdims=True), 2e-6)
        assert_near(got.sum(axis), np.ones(got.sum(axis).shape), 1e-6)
