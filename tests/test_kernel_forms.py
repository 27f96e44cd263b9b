"""Kernels in the form of `optirs_web.kernel`: levels, what is refused, and what their lowerings print."""

import ast

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import UnsupportedError
from optirs_web.kernel import Kernel, Online, Part, Read, Take, Write
from optirs_web.lower.arrays import array_source
from optirs_web.lower.in_place import Statements
from optirs_web.lower.shader import row_source
from optirs_web.ops.row_kernels import (
    LOG_SOFTMAX,
    SOFTMAX,
    SUM,
    cross_entropy_form,
    launch_rows,
    layer_norm_form,
    layer_norm_grad_form,
    named_row_kernels,
)
from optirs_web.runtime.dtypes import FLOAT32
from optirs_web.runtime.form_kernels import form_kernel
from optirs_web.tensors import empty
from optirs_web.wgsl import add_module, parse
from optirs_web.wgsl.python_dialects import NUMPY

ROW_KERNELS = named_row_kernels()
X = Read("x")


def form(*parts, reads=(X,)):
    return Kernel("tried", ("rows", "softmax"), 2, reads, parts, (Write(parts[-1].function, "result"),))


def test_the_level_of_a_value_is_where_all_that_it_needs_is_the_same():
    levels = {name: set(value.level) for name, value in SOFTMAX.values.items()}
    assert levels == {
        "x": set(),
        "size": {-2, -1},
        "count": {-2, -1},
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
        ([Part("softmax")], r"softmax needs 'power'; there are \['x', 'size', 'count'\]"),
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
    with pytest.raises(ValueError, match=r"'power' is written; there are \['x', 'size', 'count', 'largest'\]"):
        _ = kernel.written


def test_a_later_value_takes_the_name_of_an_earlier_one():
    form = layer_norm_form(has_weight=True, has_bias=True)
    assert form.values["normalized"].arguments == ("centred_deviation", "weighted")
    assert form.values["moved"].arguments == ("normalized", "bias")
    assert {array: value.name for array, value in form.written.items()} == {
        "mean": "mean",
        "scale": "scale",
        "result": "moved",
    }


def test_kinds_of_arrays_follow_from_what_is_reduced():
    assert layer_norm_grad_form(has_weight=True).kinds == ("element", "element", "column", "row", "row", "element")
    assert layer_norm_form(has_weight=False, has_bias=False).kind_of("eps") == "number"


@pytest.mark.parametrize(
    "kernel",
    [
        form(Part("largest", over=(-2,)), Part("shifted")),
        form(Part("largest"), reads=(Read("x", over=(-2,)), Read("y"))),  # writes a value of columns
    ],
)
def test_a_form_that_no_lowering_has_is_refused(kernel):
    with pytest.raises(UnsupportedError, match="kernel 'tried': only rows of a matrix"):
        form_kernel(kernel)


@pytest.mark.parametrize("kernel", [SOFTMAX, layer_norm_grad_form(has_weight=False)])
def test_only_reductions_are_made_of_segments(kernel):
    with pytest.raises(UnsupportedError, match=f"kernel '{kernel.name}': of segments of rows only reductions"):
        form_kernel(kernel, "segments")


def test_map_functions_may_take_the_place_of_what_loads_and_stores():
    source = row_source(SUM, "segments")
    assert "let v_x = loaded(first + column * parameters.inner);" in source
    assert "stored(v_sum, row);" in source
    assert "loaded(" not in row_source(layer_norm_grad_form(has_weight=False))  # which reads several arrays


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "layer_norm_grad"])
def test_a_shader_reads_the_elements_in_two_passes(name):
    assert row_source(ROW_KERNELS[name]).count("for (var column") == 2


def test_without_an_online_pair_each_reduction_is_a_pass():
    source = row_source(Kernel("tried", SOFTMAX.file, 2, (X,), SOFTMAX.parts, SOFTMAX.writes))
    assert source.count("for (var column") == 3
    assert "own_largest = max(own_largest, v_x);" in source


def test_reductions_that_do_not_need_each_other_are_found_in_one_pass():
    source = row_source(layer_norm_grad_form(has_weight=False))
    first_pass = source[source.index("for (var column") :].partition("}")[0]
    assert "own_sum = own_sum + v_scaled;" in first_pass
    assert "own_products = own_products + products(v_scaled, v_centred);" in first_pass


def test_a_reduction_without_a_share_is_0_online():
    source = row_source(layer_norm_form(has_weight=False, has_bias=False))
    assert "let v_deviations = 0.0;" in source
    assert source.count("total_of_group(") == 2


def test_online_functions_have_to_exist():
    online = Online("no_exponentials", "nothing", {"largest": "share_of_largest", "sum": "share_of_sum"})
    kernel = Kernel("tried", SOFTMAX.file, 2, (X,), SOFTMAX.parts, SOFTMAX.writes, online=online)
    with pytest.raises(ValueError, match="has no function 'nothing'"):
        row_source(kernel)


def test_numpy_computes_elements_where_the_result_goes_once_nothing_else_needs_them():
    softmax, log_softmax = (array_source(kernel, NUMPY) for kernel in (SOFTMAX, LOG_SOFTMAX))
    assert "v_power = np.exp(v_shifted, out=a_result)" in softmax
    assert "v_power = np.exp(v_shifted, out=m0)" in log_softmax  # whose result is computed from what is there
    assert "v_log_softmax = np.subtract(v_shifted, w_log_normalizer, out=a_result)" in log_softmax


def test_numpy_multiplies_rows_and_columns_and_sums_products_by_blas():
    source = array_source(layer_norm_grad_form(has_weight=True), NUMPY)
    assert "v_weighted = _outer(v_scale, v_weight, out=m0)" in source
    assert "v_products = _dot(v_scaled, v_centred)" in source
    assert "_MEMORY = 2\n" in source


@pytest.mark.parametrize("kernel", ROW_KERNELS.values(), ids=ROW_KERNELS)
def test_numpy_is_printed_without_functions_that_nothing_calls(kernel):
    tree = ast.parse(array_source(kernel, NUMPY))
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} - {"_kernel"} <= called


FUNCTIONS = """
def scaled(x, scale):
    y = np.exp(x - scale)
    return y / scale

def squared(x):
    return x * x

def bits(x):
    return np.where(x.view(np.uint32) == _u_0, x, x + x)

def same(x):
    return x
"""


def statements(**kinds):
    functions = {node.name: node for node in ast.parse(FUNCTIONS).body}
    return Statements(functions, {"v_x": "element", "v_scale": "row", **kinds})


def run(made, results, **values):
    """Run statements, with an array for each name that begins with m or a."""
    lines, count = made.text(results)
    names = {
        "np": np,
        "columns": 4,
        "_u_0": np.uint32(0),
        "_across": lambda values, columns, out: np.copyto(out, np.broadcast_to(values, out.shape)) or out,
        "_outer": lambda rows, columns, out: np.multiply(rows, columns, out=out),
        **{name: np.full((3, 4), np.nan, np.float32) for name in (*results, *(f"m{n}" for n in range(count)))},
        **values,
    }
    exec("\n".join(lines), names)
    return lines, names


VALUES = {
    "v_x": np.linspace(0.5, 2, 12, dtype=np.float32).reshape(3, 4),
    "v_scale": np.array([[1], [2], [4]], np.float32),
}


def test_each_operation_writes_over_what_nothing_needs_any_more():
    made = statements()
    assert made.element("v_y", "scaled", ["v_x", "v_scale"]) == "v_y"
    before = VALUES["v_x"].copy()
    lines, names = run(made, {"a_result": "v_y"}, **VALUES)
    assert len(lines) == 4
    assert names["v_y"] is names["a_result"]
    np.testing.assert_array_equal(names["v_y"], np.exp(before - VALUES["v_scale"]) / VALUES["v_scale"])
    np.testing.assert_array_equal(VALUES["v_x"], before)


def test_what_may_be_in_the_memory_of_an_operand_keeps_it():
    made = statements()
    y = made.element("v_y", "squared", ["v_x"])
    z = made.element("v_z", "bits", [y])
    last = made.element("v_last", "squared", [z])
    _, names = run(made, {"a_result": last}, **VALUES)
    np.testing.assert_array_equal(names["v_last"], (2 * VALUES["v_x"] ** 2) ** 2)
    np.testing.assert_array_equal(names["v_z"], 2 * VALUES["v_x"] ** 2)


def test_a_function_that_returns_its_argument_needs_no_statement():
    made = statements()
    assert made.element("v_y", "same", ["v_x"]) == "v_x"
    assert made.text({}) == ([], 0)


@pytest.mark.parametrize("order", [("v_scale", "v_factor"), ("v_factor", "v_scale")])
def test_rows_times_columns_is_an_outer_product_in_either_order(order):
    functions = {node.name: node for node in ast.parse("def product(a, b):\n    return a * b").body}
    made = Statements(functions, {"v_scale": "row", "v_factor": "column"})
    made.element("v_y", "product", order)
    assert made.text({"a_result": "v_y"})[0] == ["v_y = _outer(v_scale, v_factor, out=a_result)"]


def softmax(x):
    power = np.exp(x - x.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


def normalized(x):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 0.1)


@pytest.mark.parametrize("inner", [1, 3, 40])
@pytest.mark.parametrize("columns", [37, 70_001])
def test_rows_are_reduced_along_any_axis(device, columns, inner):
    """Also rows longer than a block of NumPy's; with numbers, and with values of rows and of columns."""
    outer = 2 if columns == 37 else 1
    if columns > 37 and inner > 3:
        columns = 2_000
    rng, shape = np.random.default_rng(0), (outer, columns, inner)
    x, grad = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    weight, bias = (rng.standard_normal((1, columns, 1)).astype(np.float32) for _ in range(2))

    def launched(kernel, *operands, numbers=()):
        on_device = [ow.tensor(operand, device=device) for operand in operands]
        sizes = {"element": shape, "row": (outer, inner)}
        results = [empty(sizes[kind], FLOAT32, device) for kind in kernel.kinds[len(operands) :]]
        launch_rows(kernel, results, on_device, shape, numbers)
        return [result.numpy() for result in results]

    exact, exact_grad = x.astype(np.float64), grad.astype(np.float64)
    close = {"rtol": 1e-5, "atol": 3e-5}
    np.testing.assert_allclose(*launched(SOFTMAX, x), softmax(exact), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(*launched(LOG_SOFTMAX, x), np.log(softmax(exact)), **close)
    mean, scale, result = launched(layer_norm_form(True, True), x, weight, bias, numbers=(0.1,))
    np.testing.assert_allclose(mean, exact.mean(1), **close)
    np.testing.assert_allclose(scale, 1 / np.sqrt(exact.var(1) + 0.1), **close)
    np.testing.assert_allclose(result, normalized(exact) * weight + bias, **close)
    h, n = exact_grad * weight, normalized(exact)
    along = h - h.mean(1, keepdims=True) - n * (h * n).mean(1, keepdims=True)
    np.testing.assert_allclose(
        *launched(layer_norm_grad_form(True), grad, x, weight, mean, scale), along * scale[:, None], **close
    )


def test_a_function_with_the_name_of_a_variable_of_the_shader_is_named():
    add_module(("rows", "clashing"), parse("fn position(x: f32) -> f32 { return x + 1.0; }", "clashing.wgsl"))
    kernel = Kernel("tried", ("rows", "clashing"), 2, (X,), (Part("position"),), (Write("position", "result"),))
    with pytest.raises(UnsupportedError, match="kernel 'tried': a function is called 'position'"):
        row_source(kernel)


def test_what_is_taken_is_of_rows_and_has_to_be_read():
    kernel = cross_entropy_form(has_weight=True, is_smoothed=False)
    assert {name: kernel.kind_of(name) for name in ("label", "place", "logit", "weight_of_label")} == {
        "label": "row",
        "place": "row",
        "logit": "row",
        "weight_of_label": "row",
    }
    source = row_source(kernel, "strided")
    assert "let v_logit = x_values[first + v_place * parameters.inner];" in source
    assert "let v_weight_of_label = class_weight_values[v_place];" in source
    taken = Kernel("tried", kernel.file, 2, (X,), (Take("logit", "y", at="count"),), ())
    with pytest.raises(ValueError, match="'logit' is taken from 'y' at 'count'; there are"):
        _ = taken.values


def test_what_only_a_rows_first_invocation_stores_is_computed_there():
    stored = row_source(cross_entropy_form(has_weight=False, is_smoothed=False)).partition("if member == 0u")[2]
    assert "let v_label = label_values[own_row];" in stored
