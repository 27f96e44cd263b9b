"""Printed NumPy computes what WGSL says, and reads well."""

import itertools
import traceback

import numpy as np
import pytest
from map_functions import DTYPES, checked, compiled, evaluate, parameter_types, result_types
from printed_cases import CASES, CONTROL_FLOW, I32

from optirs_web.errors import UnsupportedError
from optirs_web.wgsl.print_python import compile_python, print_python


def same(got, expected):
    return np.array_equal(got, expected, equal_nan=got.dtype == np.float32)


@pytest.mark.parametrize("name", CASES)
def test_hand_written_values_for_scalars_and_arrays(name):
    text, rows = CASES[name]
    functions, namespace = compiled(text)
    arguments = [DTYPES[t] for t in parameter_types(functions[-1])]
    results = [DTYPES[t] for t in result_types(functions[-1])]
    columns = [np.array(c, t) for c, t in zip(zip(*(a for a, _ in rows), strict=True), arguments, strict=True)]
    expected = [np.array(c, t) for c, t in zip(zip(*(r for _, r in rows), strict=True), results, strict=True)]

    scattered = [np.stack([column, column], 1)[:, 0] for column in columns]
    for chosen in (columns, scattered):
        for got, wanted in zip(evaluate(namespace, functions[-1], chosen), expected, strict=True):
            assert got.dtype == wanted.dtype
            assert same(np.broadcast_to(got, wanted.shape), wanted)
    for row in range(len(rows)):
        for scalar in ([column[row] for column in columns], [np.array(column[row]) for column in columns]):
            for got, wanted in zip(evaluate(namespace, functions[-1], scalar), expected, strict=True):
                assert got.dtype == wanted.dtype
                assert got.shape == ()
                assert same(got, wanted[row])


@pytest.mark.parametrize("name", CASES)
def test_scalars_and_arrays_mix(name):
    text, rows = CASES[name]
    functions, namespace = compiled(text)
    types = [DTYPES[t] for t in parameter_types(functions[-1])]
    for row, varying in itertools.product(rows, range(len(types))):
        leaves = [t(value) for t, value in zip(types, row[0], strict=True)]
        leaves[varying] = np.full((2, 3), leaves[varying])
        for got, expected in zip(evaluate(namespace, functions[-1], leaves), row[1], strict=True):
            assert got.shape in ((), (2, 3))
            assert same(got, np.full(got.shape, expected, got.dtype))


# What the text looks like.

ADAM = """
struct Hyper { lr: f32, beta1: f32, eps: f32 }
struct State { exp_avg: f32, exp_avg_sq: f32 }
struct Updated { param: f32, state: State }
fn squared(x: f32) -> f32 { return x * x; }
fn update(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    let exp_avg = h.beta1 * state.exp_avg + (1.0 - h.beta1) * grad;
    var exp_avg_sq = state.exp_avg_sq + squared(grad);
    if (param == 0.0) { exp_avg_sq = 0.0; }
    return Updated(param - h.lr * exp_avg / (sqrt(exp_avg_sq) + h.eps), State(exp_avg, exp_avg_sq));
}
"""

ADAM_IN_NUMPY = """\
# adam.wgsl for numpy, printed by optirs_web. Call under np.errstate(all="ignore").
from typing import NamedTuple

import numpy as np

_f_0_0 = np.float32(0.0)
_f_1_0 = np.float32(1.0)


class Hyper(NamedTuple):
    lr: np.float32
    beta1: np.float32
    eps: np.float32


class State(NamedTuple):
    exp_avg: np.float32
    exp_avg_sq: np.float32


class Updated(NamedTuple):
    param: np.float32
    state: State


def _select(otherwise, then, condition):
    if condition.ndim == 0:
        return then if condition else otherwise
    if then.dtype.itemsize != 4:
        return np.where(condition, then, otherwise)
    mask = np.negative(condition.view(np.int8)).astype(np.int32)  # no branch that a processor guesses
    bits = otherwise.view(np.int32)
    return ((bits ^ then.view(np.int32)) & mask ^ bits).view(then.dtype)


def squared(x):  # adam.wgsl:5:1
    return x * x


def update(param, grad, state, h):  # adam.wgsl:6:1
    exp_avg = h.beta1 * state.exp_avg + (_f_1_0 - h.beta1) * grad
    exp_avg_sq = _select(state.exp_avg_sq + squared(grad), _f_0_0, param == _f_0_0)
    return Updated(param - h.lr * exp_avg / (np.sqrt(exp_avg_sq) + h.eps), State(exp_avg, exp_avg_sq))
"""


def test_the_text_is_readable_and_the_same_each_time():
    module = checked(ADAM, "adam.wgsl")
    assert print_python(module) == ADAM_IN_NUMPY
    assert print_python(checked(ADAM, "adam.wgsl")) == ADAM_IN_NUMPY


def test_only_the_functions_named_and_what_they_call_are_printed():
    namespace = compile_python(print_python(checked(ADAM, "adam.wgsl"), functions=["squared"]), "some")
    assert "squared" in namespace
    assert not {"update", "Hyper"} & set(namespace)


def test_tracebacks_show_the_printed_line():
    namespace = compile_python(print_python(checked(ADAM, "adam.wgsl")), "shown")
    try:
        namespace["squared"](None)
    except TypeError as error:
        shown = "".join(traceback.format_exception(error))
    assert "<optirs_web shown>" in shown
    assert "return x * x" in shown


def test_any_number_of_early_returns_straightens():
    returns = " ".join(f"if (x == {n}) {{ return {n * n}; }}" for n in range(120))
    functions, namespace = compiled(f"fn f(x: i32) -> i32 {{ {returns} return -1; }}")
    x = np.arange(-1, 122, dtype=I32)
    expected = np.where((x >= 0) & (x < 120), x * x, -1)
    assert np.array_equal(evaluate(namespace, functions[0], [x])[0], expected)


def test_inputs_are_left_as_they_are():
    text, _ = CONTROL_FLOW["break and continue that depend on data"]
    functions, namespace = compiled(text)
    x, y = np.arange(6, dtype=I32), np.arange(6, dtype=I32)[::-1].copy()
    before = x.copy(), y.copy()
    x.flags.writeable = y.flags.writeable = False
    evaluate(namespace, functions[-1], [x, y])
    assert np.array_equal(x, before[0])
    assert np.array_equal(y, before[1])


def test_a_built_in_that_the_dialect_lacks_is_named():
    module = checked("fn f(x: u32) -> u32 { return dot4U8Packed(x, x); }")
    with pytest.raises(UnsupportedError, match=r"test.wgsl:1:\d+: 'dot4U8Packed u32'"):
        print_python(module)


@pytest.mark.parametrize(
    "text",
    [
        "fn _g(x: f32) -> f32 { return x; } fn g_(x: f32) -> f32 { return x; }",
        "struct S { _a: f32, a_: f32 } fn f(s: S) -> f32 { return s.a_; }",
    ],
)
def test_names_that_python_cannot_tell_apart_are_refused(text):
    with pytest.raises(UnsupportedError, match=r"'_(g|a)' and '(g|a)_' are one name"):
        print_python(checked(text))
