"""Kernels in the form of `optirs_web.kernel`: levels, what is refused, and what their lowerings print."""

import ast

import numpy as np
import pytest

from optirs_web.errors import UnsupportedError
from optirs_web.kernel import Kernel, Part, Read, Write
from optirs_web.lower.arrays import array_source
from optirs_web.lower.in_place import in_place
from optirs_web.lower.shader import row_source
from optirs_web.native_backends.cpu.numpy.forms import bind_form
from optirs_web.ops.row_kernels import ROW_KERNELS, SOFTMAX
from optirs_web.runtime.form_kernels import form_kernel
from optirs_web.wgsl.python_dialects import NUMPY

X = Read("x")


def form(*parts, reads=(X,)):
    return Kernel("tried", ("rows", "softmax"), 2, reads, parts, (Write(parts[-1].function, "result"),))


def test_the_level_of_a_value_is_where_all_that_it_needs_is_the_same():
    levels = {name: set(value.level) for name, value in SOFTMAX.values.items()}
    assert levels == {
        "x": set(),
        "largest": {-1},
        "shifted": set(),
        "power": set(),
        "sum": {-1},
        "normalizer": {-1},
        "softmax": set(),
    }


def test_what_is_reduced_along_both_axes_is_one_value():
    reads = (Read("x", over=(-2,)),)
    assert form(Part("largest", over=(-1,)), reads=reads).values["largest"].level == {-1, -2}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([Part("softmax")], r"softmax needs 'power'; there are \['x'\]"),
        ([Part("largest"), Part("largest")], "two values are called 'largest'"),
        ([Part("nothing")], "shaders/rows/softmax.wgsl has no function 'nothing'"),
        (
            [Part("largest", over=(-1,)), Part("log_normalizer", over=(-1,))],
            "log_normalizer needs 'normalizer'",
        ),
    ],
)
def test_what_does_not_fit_is_named(parts, message):
    with pytest.raises(ValueError, match=f"kernel 'tried': {message}"):
        _ = form(*parts).values


def test_what_is_the_same_along_a_row_is_not_reduced_along_it():
    reads = Read("largest", over=(-1,)), Read("sum", over=(-1,))
    with pytest.raises(ValueError, match=r"normalizer is the same along what it reduces, \(-1,\)"):
        _ = form(Part("normalizer", over=(-1,)), reads=reads).values


def test_a_value_that_is_written_has_to_exist():
    kernel = Kernel("tried", ("rows", "softmax"), 2, (X,), (Part("largest"),), (Write("power", "result"),))
    with pytest.raises(ValueError, match=r"'power' is written; there are \['x', 'largest'\]"):
        _ = kernel.values


@pytest.mark.parametrize(
    "kernel",
    [
        form(Part("largest", over=(-1,))),  # writes a value of rows
        form(Part("largest", over=(-2,)), Part("shifted")),
        form(Part("shifted"), reads=(X, Read("largest", over=(-1,)))),
    ],
)
def test_a_form_that_no_lowering_has_is_refused(kernel):
    with pytest.raises(UnsupportedError, match="kernel 'tried': only elements of a matrix"):
        form_kernel(kernel)


@pytest.mark.parametrize("name", ROW_KERNELS)
def test_a_shader_reads_the_elements_in_two_passes(name):
    assert row_source(ROW_KERNELS[name]).count("for (var column") == 2


def test_without_an_online_pair_each_reduction_is_a_pass():
    parts = (
        Part("largest", over=(-1,), combine="max"),
        Part("shifted"),
        Part("power"),
        Part("sum", over=(-1,)),
        Part("normalizer"),
    )
    source = row_source(form(*parts, Part("softmax")))
    assert source.count("for (var column") == 3
    assert "own_largest = max(own_largest, largest(v_x));" in source


def test_numpy_computes_elements_where_the_result_goes_once_nothing_else_needs_them():
    softmax, log_softmax = (array_source(ROW_KERNELS[name], NUMPY) for name in ("softmax", "log_softmax"))
    assert "v_power = power(v_shifted, a_result)" in softmax
    assert "v_shifted = shifted(v_x, w_largest, a_result)" in softmax
    assert "v_power = power(v_shifted, a_result)" in log_softmax
    assert "v_shifted = shifted(v_x, w_largest)" in log_softmax  # which the result is computed from


PRINTED = """
def scaled(x, scale):
    y = np.exp(x - scale)
    return y / scale

def logarithm(x):
    return np.log(x)

def chosen(x):
    return np.where(x > 0, x, np.log(x))
"""


def compiled(text):
    namespace = {"np": np}
    exec(text, namespace)
    return namespace


@pytest.mark.parametrize(("name", "count"), [("scaled", 2), ("logarithm", 1)])
def test_a_result_is_written_to_an_array(name, count):
    function, plain = (compiled(text)[name] for text in (in_place(PRINTED, {name}), PRINTED))
    x = np.linspace(0.5, 1, 12, dtype=np.float32).reshape(3, 4)
    before, operands, out = x.copy(), (x, x.max(1, keepdims=True))[:count], np.empty_like(x)
    assert function(*operands, out) is out
    np.testing.assert_array_equal(out, plain(*operands))
    np.testing.assert_array_equal(function(*operands), plain(*operands))
    np.testing.assert_array_equal(x, before)


def test_what_neither_an_operator_nor_numpy_computes_last_is_returned():
    x, out = np.ones(3, np.float32), np.zeros(3, np.float32)
    result = compiled(in_place(PRINTED, {"chosen"}))["chosen"](x, out)
    np.testing.assert_array_equal(result, x)
    np.testing.assert_array_equal(out, 0)


def test_only_results_get_an_array_for_them():
    tree = ast.parse(in_place(PRINTED, {"logarithm"}))
    assert [node.name for node in tree.body if node.args.args[-1].arg == "_out"] == ["logarithm"]


@pytest.mark.parametrize("inner", [1, 3, 40])
@pytest.mark.parametrize("name", ROW_KERNELS)
def test_numpy_computes_rows_longer_and_shorter_than_a_block(name, inner):
    rows, columns = 2 * inner, 70_001 if inner == 1 else 37
    kernel = form_kernel(ROW_KERNELS[name], inner > 1)
    x = np.random.default_rng(0).standard_normal((2, columns, inner)).astype(np.float32)
    result = np.empty_like(x)
    values = {"rows": rows, "columns": columns, "inner": inner}
    bind_form(kernel, [x.reshape(-1).view(np.uint8), result.reshape(-1).view(np.uint8)], values)()
    shifted = x.astype(np.float64) - x.max(1, keepdims=True)
    expected = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    np.testing.assert_allclose(result, expected if name == "log_softmax" else np.exp(expected), rtol=2e-6, atol=2e-6)
