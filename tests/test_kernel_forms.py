"""Kernels in the form of `optirs_web.kernel`: levels, what is refused, and what their lowerings print."""

import ast

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import UnsupportedError
from optirs_web.kernel import Kernel, Online, Part, Read, Take, Write
from optirs_web.lower import shader
from optirs_web.lower.arrays import array_source
from optirs_web.lower.in_place import Statements
from optirs_web.lower.maps import Places
from optirs_web.lower.shader import row_source
from optirs_web.ops.row_kernels import (
    LAYER_NORM_AFFINE_GRAD,
    LOG_SOFTMAX,
    LOG_SOFTMAX_GRAD,
    SOFTMAX,
    SOFTMAX_GRAD,
    SUM,
    cross_entropy_form,
    extremum_form,
    launch_rows,
    layer_norm_form,
    layer_norm_grad_form,
    named_row_kernels,
)
from optirs_web.runtime.dtypes import FLOAT32
from optirs_web.runtime.form_kernels import form_kernel
from optirs_web.runtime.map_kernels import MapKernel
from optirs_web.tensors import empty
from optirs_web.wgsl import add_module, load_map_module, parse
from optirs_web.wgsl.print_python import compile_python, print_python
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
        "begin": {-1},
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
        ([Part("softmax")], r"softmax needs 'power'; there are \['x', 'index'\]"),
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
    with pytest.raises(ValueError, match=r"'power' is written; there are \['x', 'index', 'largest'\]"):
        _ = kernel.written


def test_a_later_value_takes_the_name_of_an_earlier_one():
    form = layer_norm_form(has_weight=True, has_bias=True)
    assert form.values["normalized"].arguments == ("centred", "weighted")
    assert form.values["with_bias"].arguments == ("normalized", "bias")
    assert {array: value.name for array, value in form.written.items()} == {
        "mean": "mean",
        "scale": "scale",
        "result": "with_bias",
    }


def test_kinds_of_arrays_follow_from_what_is_reduced():
    assert layer_norm_grad_form(has_weight=True).kinds == ("element", "element", "column", "row", "row", "element")
    assert layer_norm_form(has_weight=False, has_bias=False).kind_of("eps") == "number"


@pytest.mark.parametrize(
    "kernel",
    [
        form(Part("largest", over=(-2,)), Part("shifted")),
        form(Part("largest")),  # reduces nothing
        form(Part("largest", over=(-1,)), reads=(X, Read("y", over=(-1, -2)))),  # reads what is the same for all
        form(Part("largest"), reads=(Read("x", over=(-2,)), Read("y"))),  # writes a value of columns
    ],
)
def test_a_form_that_no_lowering_has_is_refused(kernel):
    with pytest.raises(UnsupportedError, match="kernel 'tried': it has to reduce the rows of a matrix"):
        form_kernel(kernel)


@pytest.mark.parametrize("kernel", [SOFTMAX, layer_norm_grad_form(has_weight=False)])
def test_of_segments_only_what_is_found_in_them_is_written(kernel):
    with pytest.raises(
        UnsupportedError, match=f"kernel '{kernel.name}': of segments of rows only what is found in them"
    ):
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
    assert "own_products = own_products + products(v_scaled, v_standardized);" in first_pass


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
    assert "v_products = _dot(v_scaled, v_standardized)" in source
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
        "_u_0": np.uint32(0),
        "_across": lambda values, out: np.copyto(out, np.broadcast_to(values, out.shape)) or out,
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
    y = softmax(exact)
    of_row = (exact_grad * y).sum(1, keepdims=True)
    (gradient,) = launched(SOFTMAX_GRAD, grad, y.astype(np.float32))
    np.testing.assert_allclose(gradient, y * (exact_grad - of_row), rtol=1e-5, atol=1e-6)
    (gradient,) = launched(LOG_SOFTMAX_GRAD, grad, np.log(y).astype(np.float32))
    np.testing.assert_allclose(gradient, exact_grad - y * exact_grad.sum(1, keepdims=True), **close)
    mean, scale, result = launched(layer_norm_form(True, True), x, weight, bias, numbers=(0.1,))
    np.testing.assert_allclose(mean, exact.mean(1), **close)
    np.testing.assert_allclose(scale, 1 / np.sqrt(exact.var(1) + 0.1), **close)
    np.testing.assert_allclose(result, normalized(exact) * weight + bias, **close)
    h, n = exact_grad * weight, normalized(exact)
    along = h - h.mean(1, keepdims=True) - n * (h * n).mean(1, keepdims=True)
    np.testing.assert_allclose(
        *launched(layer_norm_grad_form(True), grad, x, weight, mean, scale), along * scale[:, None], **close
    )
    labels = rng.integers(0, columns, (outer, 1, inner)).astype(np.int32)
    labels[0, 0, 0] = -1
    class_weight, smoothing = np.abs(weight), 0.2
    log_sum, loss, weights, shares = launched(
        cross_entropy_form(True, True), x, labels, class_weight, numbers=(-1, smoothing)
    )
    logarithms = np.log(softmax(exact))
    of_label = np.take_along_axis(logarithms, np.maximum(labels, 0), 1)[:, 0]
    want_weights = np.take_along_axis(class_weight * np.ones_like(x), np.maximum(labels, 0), 1)[:, 0]
    want = -(1 - smoothing) * want_weights * of_label - smoothing / columns * (class_weight * logarithms).sum(1)
    want_shares = (1 - smoothing) * want_weights + smoothing / columns * class_weight.sum()
    is_counted = labels[:, 0] >= 0
    np.testing.assert_allclose(log_sum, np.log(np.exp(exact).sum(1)), **close)
    for got, expected in ((loss, want), (weights, want_weights), (shares, want_shares)):
        np.testing.assert_allclose(got, np.where(is_counted, expected, 0), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("inner", [1, 3, 40])
@pytest.mark.parametrize("columns", [8, 10, 23])
def test_segments_of_rows_are_reduced_by_themselves(device, columns, inner):
    """Also where the last one is shorter."""
    outer, segment = 3, 8
    rng, shape = np.random.default_rng(0), (outer, columns, inner)
    x, grad = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    mean, scale = (rng.standard_normal((1, columns, 1)).astype(np.float32) for _ in range(2))
    segments = -(-columns // segment)

    def launched(kernel, *operands):
        on_device = [ow.tensor(operand, device=device) for operand in operands]
        results = [empty((outer, segments, inner), FLOAT32, device) for _ in kernel.writes]
        launch_rows(kernel, results, on_device, shape, segment=segment)
        return [result.numpy() for result in results]

    def summed(values):
        parts = np.split(values.astype(np.float64), range(segment, columns, segment), axis=1)
        return np.stack([part.sum(1) for part in parts], axis=1)

    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(*launched(SUM, x), summed(x), **close)
    weight_grad, bias_grad = launched(LAYER_NORM_AFFINE_GRAD, grad, x, mean, scale)
    np.testing.assert_allclose(weight_grad, summed(grad * ((x.astype(np.float64) - mean) * scale)), **close)
    np.testing.assert_allclose(bias_grad, summed(grad), **close)


TRIED = """
fn total(x: f32) -> f32 { return x; }
fn lowered(x: f32, total: f32) -> f32 { return x - total; }
fn product(lowered: f32, x: f32) -> f32 { return lowered * x; }
fn both(product: f32, lowered: f32) -> f32 { return product + lowered; }
fn last(lowered: f32, both: f32) -> f32 { return lowered - both; }
fn largest(lowered: f32) -> f32 { return lowered; }
fn below(lowered: f32, largest: f32) -> f32 { return lowered - largest; }
fn same_bits(x: f32, label: i32) -> f32 { return select(x, bitcast<f32>(label), label > 16777216); }
fn constant(x: f32) -> f32 { return 1.0; }
fn spread(below: f32) -> f32 { return below; }
"""


@pytest.fixture(scope="module")
def tried():
    """Return a function that makes a kernel of the functions above, each of the named ones written."""
    add_module(("rows", "tried"), parse(TRIED, "tried.wgsl"))

    def made(parts, written, reads=(X,)):
        writes = tuple(Write(value, f"of_{value}") for value in written)
        return Kernel("tried", ("rows", "tried"), 2, reads, tuple(parts), writes)

    return made


def launched(kernel, device, *operands, shape):
    results = [empty(shape, FLOAT32, device) for _ in kernel.writes]
    launch_rows(kernel, results, [ow.tensor(operand, device=device) for operand in operands], shape)
    return [result.numpy() for result in results]


@pytest.mark.parametrize("inner", [1, 3, 40])
@pytest.mark.parametrize("written", [("product", "last"), ("both", "last"), ("last", "both"), ("lowered", "product")])
def test_several_results_do_not_write_over_each_other(device, tried, written, inner):
    parts = [Part("total", over=(-1,)), *map(Part, ("lowered", "product", "both", "last"))]
    x = np.random.default_rng(0).standard_normal((2, 5, inner)).astype(np.float32)
    values = {"lowered": x - x.sum(1, keepdims=True)}
    values["product"] = values["lowered"] * x
    values["both"] = values["product"] + values["lowered"]
    values["last"] = values["lowered"] - values["both"]
    for name, got in zip(written, launched(tried(parts, written), device, x, shape=x.shape), strict=True):
        np.testing.assert_allclose(got, values[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 2, 7])
def test_a_maximum_stays_when_what_it_is_of_is_written_over(device, tried, columns):
    parts = [Part("total", over=(-1,)), Part("lowered"), Part("largest", over=(-1,), combine="max"), Part("below")]
    x = np.random.default_rng(0).standard_normal((2, columns, 40)).astype(np.float32)
    (got,) = launched(tried(parts, ["below"]), device, x, shape=x.shape)
    lowered = x - x.sum(1, keepdims=True)
    np.testing.assert_allclose(got, lowered - lowered.max(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_integers_of_rows_stay_integers_for_elements(device, tried):
    parts = [Part("total", over=(-1,)), Part("same_bits")]
    kernel = tried(parts, ["same_bits"], reads=(X, Read("label", over=(-1,), type="i32")))
    x, label = np.ones((2, 3, 1), np.float32), np.array([[16777216], [16777217]], np.int32)
    (got,) = launched(kernel, device, x, label, shape=x.shape)
    np.testing.assert_array_equal(got[:, 0, 0], [1.0, label[1].view(np.float32)[0]])


def test_segments_are_refused_where_elements_need_what_is_found(tried):
    parts = [Part("total", over=(-1,)), Part("lowered"), Part("largest", over=(-1,))]
    with pytest.raises(UnsupportedError, match="of segments of rows only what is found in them"):
        form_kernel(tried(parts, ["largest"]), "segments")
    with pytest.raises(UnsupportedError, match="of segments of rows only what is found in them"):
        form_kernel(cross_entropy_form(has_weight=False, is_smoothed=False), "segments")


def test_what_an_earlier_pass_gives_is_found_before_an_online_one(tried):
    parts = [
        Part("total", over=(-1,)),
        Part("lowered"),
        Part("largest", over=(-1,)),
        Part("below"),
        Part("spread", over=(-1,)),
    ]
    kernel = tried(parts, ["spread"])
    online = Online("start", "update", {"largest": "share", "spread": "share"})
    passes = shader._passes(Kernel("tried", kernel.file, 2, (X,), kernel.parts, kernel.writes, online=online))
    assert [[part.function for part in together] for together in passes] == [["total"], ["largest", "spread"]]


def test_a_function_that_ignores_its_element_is_named(tried):
    with pytest.raises(UnsupportedError, match="'constant' has one value for all elements"):
        array_source(tried([Part("constant", over=(-1,))], ["constant"]), NUMPY)


def test_names_are_used_once():
    for reads, numbers in (((X, Read("size")), {}), ((X,), {"x": "f32"}), ((X, X), {})):
        kernel = Kernel("tried", SUM.file, 2, reads, SUM.parts, SUM.writes, numbers)
        with pytest.raises(ValueError, match="kernel 'tried': two arrays, numbers"):
            _ = kernel.values
    with pytest.raises(ValueError, match="a launch of rows has a parameter 'columns'"):
        form_kernel(Kernel("tried", SUM.file, 2, (X,), SUM.parts, SUM.writes, {"columns": "f32"}))


def test_an_element_is_taken_where_a_value_of_rows_says():
    for array, at in (("label", "label"), ("x", "count"), ("x", "nothing")):
        reads = (X, Read("label", over=(-1,), type="i32"))
        kernel = Kernel("tried", SUM.file, 2, reads, (Part("sum", over=(-1,)), Take("taken", array, at)), ())
        with pytest.raises(ValueError, match="kernel 'tried': 'taken' "):
            _ = kernel.values


def test_a_function_with_the_name_of_a_variable_of_the_shader_is_named():
    add_module(("rows", "clashing"), parse("fn position(x: f32) -> f32 { return x + 1.0; }", "clashing.wgsl"))
    kernel = Kernel("tried", ("rows", "clashing"), 2, (X,), (Part("position"),), (Write("position", "result"),))
    with pytest.raises(UnsupportedError, match="kernel 'tried': a function is called 'position'"):
        row_source(kernel)


def test_what_is_taken_is_of_rows_and_has_to_be_read():
    kernel = cross_entropy_form(has_weight=True, is_smoothed=False)
    assert {name: kernel.kind_of(name) for name in ("label", "label_column", "logit", "weight_of_label")} == {
        "label": "row",
        "label_column": "row",
        "logit": "row",
        "weight_of_label": "row",
    }
    source = row_source(kernel, "strided")
    assert "let v_logit = x_values[first + (segment + v_label_column) * parameters.inner];" in source
    assert "let v_weight_of_label = class_weight_values[(segment + v_label_column)];" in source
    taken = Kernel("tried", kernel.file, 2, (X,), (Take("logit", "y", at="count"),), ())
    with pytest.raises(ValueError, match="'logit' is taken from 'y' at 'count'; there are"):
        _ = taken.values


def test_what_only_a_rows_first_invocation_stores_is_computed_there():
    stored = row_source(cross_entropy_form(has_weight=False, is_smoothed=False)).partition("if member == 0u")[2]
    assert "let v_label = label_values[own_row];" in stored


@pytest.mark.parametrize("type_", ["f32", "i32", "u32"])
@pytest.mark.parametrize("is_smallest", [False, True])
def test_an_element_that_is_looked_for_has_the_highest_rank_of_its_type(type_, is_smallest):
    kernel = extremum_form(type_, is_smallest, "both", has_places=False)
    source = row_source(kernel, "segments")
    assert f"Candidate(rank_of_{type_}(v_x, {str(is_smallest).lower()}), column - segment)" in source
    assert f"var<storage, read_write> result_values: array<{type_}>;" in source
    assert "var<storage, read_write> place_of_result_values: array<i32>;" in source
    assert kernel.type_of("extreme") == type_
    assert (kernel.type_of("place_in_row"), kernel.type_of("begin"), kernel.type_of("size")) == ("i32", "u32", "f32")


def test_what_is_found_is_combined_without_subgroups(device):
    """A device that has subgroups takes the kernel without: they add up and compare numbers alone."""
    kernel = extremum_form("f32", is_smallest=False, gives="place", has_places=False)
    assert kernel.finds_elements
    assert "SUBGROUPS" not in row_source(kernel)
    x = np.arange(2 * 5000, dtype=np.float32).reshape(2, 5000) % 4099
    assert ow.tensor(x, device=device).argmax(axis=1).tolist() == x.argmax(1).tolist()


@pytest.mark.parametrize(("length", "inner"), [(4096, 1), (4097, 3), (8193, 40), (12_289, 2)])
def test_a_long_axis_is_searched_in_segments(device, length, inner):
    x = np.random.default_rng(0).integers(-9, 9, (2, length, inner)).astype(np.int32)
    for values in (x, x.astype(np.float32), np.where(x == 8, np.nan, x).astype(np.float32)):
        t = ow.tensor(values, device=device)
        for name in ("max", "min", "argmax", "argmin"):
            np.testing.assert_array_equal(getattr(t, name)(axis=1).numpy(), getattr(np, name)(values, axis=1))


# Maps.


def printed_statements(source, results, held=None, **names):
    """Return the lines that NumPy runs for a function of these names, whose kinds are given."""
    (function,) = ast.parse(source).body
    statements = Statements(
        {"f": function}, dict.fromkeys(names, "element"), {n for n, is_float in names.items() if not is_float}
    )
    value = statements.element("v_f", "f", list(names))
    lines, _ = statements.text(dict.fromkeys(results, value), held)
    return lines


def test_an_operand_is_computed_once_where_another_is_no_float():
    lines = printed_statements("def f(x, mask): return np.exp(x) * mask", [], v_x=True, v_mask=False)
    assert "\n".join(lines).count("np.exp") == 1


def test_what_an_array_holds_is_not_written_over_while_it_is_needed():
    text = "def f(old, g): return (g * g) + old"
    lines = printed_statements(text, ["a_y"], {"a_y": "v_old"}, v_old=True, v_g=True)
    assert lines == ["t0 = np.multiply(v_g, v_g, out=m0)", "v_f = np.add(t0, v_old, out=a_y)"]


def of_maps(*parts, reads, writes, numbers=None):
    return Kernel("tried", ("elementwise", "add"), 1, reads, parts, writes, numbers or {})


def elementwise_part(function, gives, *arguments, file=None):
    return Part(function, gives=gives, file=("elementwise", file or function), arguments=arguments)


def test_a_bool_that_another_part_needs_becomes_a_number():
    kernel = of_maps(
        elementwise_part("less_f32", "t0", "x", "y", file="compare"),
        elementwise_part("u32_to_f32", "t1", "t0", file="convert"),
        reads=(Read("x"), Read("y")),
        writes=(Write("t1", "result"),),
    )
    assert "np.uint32(" in array_source(kernel, NUMPY)


def test_a_function_may_be_used_twice_in_a_map_and_parts_be_of_several_files():
    kernel = of_maps(
        Part("add", arguments=("x", "x"), gives="t0"),
        elementwise_part("multiply", "t1", "t0", "x"),
        elementwise_part("multiply", "t2", "t1", "t1"),
        reads=(Read("x"),),
        writes=(Write("t2", "result"),),
    )
    assert [value.name for value, _ in kernel.computed] == ["add", "multiply", "t2"]
    assert kernel.values["t2"].arguments == ("multiply", "multiply")
    functions = {getattr(declaration, "name", "") for declaration in kernel.map_module.declarations}
    assert {"add", "multiply"} <= functions


@pytest.mark.parametrize(
    ("part", "reads"),
    [
        (Part("largest", over=(-1,), file=("rows", "softmax"), gives="made"), (Read("x"),)),
        (Part("add", arguments=("x", "x"), gives="made"), (Read("x", over=(-1,)),)),
        (Take("made", "x", "place", "fill"), (Read("x"), Read("place", type="u32"))),
        (Take("made", "x", fill="fill"), (Read("x"),)),
    ],
    ids=["a reduction", "of a row", "a table that is not strided", "a part that is not strided"],
)
def test_a_form_that_is_no_map_is_refused(part, reads):
    kernel = of_maps(part, reads=reads, writes=(Write("made", "result"),), numbers={"fill": "f32"})
    with pytest.raises(
        UnsupportedError, match="kernel 'tried': a map has no reductions, and takes elements of what is strided"
    ):
        MapKernel(kernel, Places())


def test_what_is_written_in_part_is_not_read_before():
    kernel = of_maps(
        Part("add", arguments=("x", "x"), gives="made"),
        reads=(Read("x", array="result"),),
        writes=(Write("made", "result"),),
    )
    assert not MapKernel(kernel, Places()).overwrites
    with pytest.raises(UnsupportedError, match="'tried' reads the old elements of an array that is written in part"):
        MapKernel(kernel, Places(1, ("result",)))


def test_a_choice_keeps_the_bits_of_nan_and_of_zeros():
    namespace = compile_python(print_python(load_map_module("elementwise", "where", ("where_f32",)), NUMPY), "where")
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x7F800000], np.uint32)
    condition = np.array([1, 0, 1, 0], np.uint32)
    got = namespace["where_f32"](condition, bits.view(np.float32), bits[::-1].view(np.float32))
    np.testing.assert_array_equal(got.view(np.uint32), np.where(condition != 0, bits, bits[::-1]))
