"""Products of which map functions compute an operand block by block, as on the processor."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optirs_web as ow
from optirs_web.errors import UnsupportedError
from optirs_web.nn import functional as F
from optirs_web.profiling.costs import costs_of
from optirs_web.runtime import blocked_products
from optirs_web.runtime.blocked_products import BlockedProductKernel
from optirs_web.runtime.launches import Launch
from optirs_web.runtime.timing import Work

ROWS, INNER, COLUMNS = 1024, 96, 40


@pytest.fixture(params=["cpu", pytest.param("numba", marks=pytest.mark.needs("numba"))])
def cpu(request, open_device):
    """The processor, with each of its two ways to run map functions."""
    return open_device(request.param)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def blocked(step):
    launches = [launch for launch in step.program.launches if isinstance(launch, Launch)]
    return [launch for launch in launches if isinstance(launch.kernel, BlockedProductKernel)]


def computed(device, function, arrays, is_blocked):
    """Return the results of a compiled function, with operands block by block or as a whole, and the step."""
    before = device.capabilities
    device.capabilities = replace(before, blocked_products=is_blocked)
    try:
        step = ow.compile(function, device=device)
        got = step(*(ow.tensor(array, device=device) for array in arrays))
    finally:
        device.capabilities = before
    return [one.numpy() for one in (got if isinstance(got, list) else [got])], step


def merged_heads(x, w):
    return x.reshape(16, 4, 64, INNER // 4).permute(0, 2, 1, 3).reshape(ROWS, INNER) @ w


def after_an_activation_that_is_kept(x, v, w):
    hidden = x @ v
    return [F.gelu(hidden) @ w, hidden]


OF_ROWS = {
    "rows": (lambda x, w: F.gelu(x) @ w, [(ROWS, INNER), (INNER, COLUMNS)]),
    "a short last block": (lambda x, w: F.gelu(x) @ w, [(ROWS + 37, INNER), (INNER, COLUMNS)]),
    "a transposed factor": (lambda x, w: F.gelu(x) @ w.T, [(ROWS, INNER), (COLUMNS, INNER)]),
    "what follows": (
        lambda x, w, bias, residual: F.gelu(x) @ w + bias + residual,
        [(ROWS, INNER), (INNER, COLUMNS), (COLUMNS,), (ROWS, COLUMNS)],
    ),
    "strided rows": (merged_heads, [(ROWS, INNER), (INNER, COLUMNS)]),
    "an activation": (after_an_activation_that_is_kept, [(ROWS, 16), (16, INNER), (INNER, COLUMNS)]),
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_blocks_of_rows_give_the_whole_product_in_less_memory(cpu, name):
    function, shapes = OF_ROWS[name]
    arrays = [random(*shape, seed=number) for number, shape in enumerate(shapes)]
    parts, step = computed(cpu, function, arrays, is_blocked=True)
    whole, other = computed(cpu, function, arrays, is_blocked=False)
    for part, expected in zip(parts, whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-5, atol=1e-4)
    assert (len(blocked(step)), len(blocked(other))) == (1, 0)
    assert step.program.nbytes < other.program.nbytes
    assert step.program.dispatches <= other.program.dispatches


SUMS = {
    "the first factor": lambda x, g: F.gelu(x).T @ g,
    "the second factor": lambda x, g: g.T @ F.gelu(x),
}


@pytest.mark.parametrize("name", SUMS)
def test_blocks_of_the_inner_axis_are_added_to_the_whole_product_in_less_memory(cpu, name):
    arrays = random(ROWS + 37, INNER), random(ROWS + 37, COLUMNS, seed=1)
    (actual,), step = computed(cpu, SUMS[name], arrays, is_blocked=True)
    (whole,), other = computed(cpu, SUMS[name], arrays, is_blocked=False)
    np.testing.assert_allclose(actual, whole, rtol=1e-5, atol=2e-4)
    assert (len(blocked(step)), len(blocked(other))) == (1, 0)
    assert step.program.nbytes < other.program.nbytes


def test_results_have_the_bits_of_the_products_of_blocks(cpu):
    x, w, g = random(ROWS + 37, INNER), random(INNER, COLUMNS, seed=1), random(ROWS + 37, COLUMNS, seed=2)
    operand = F.relu(ow.tensor(x, device=cpu)).numpy()
    (of_rows,), step = computed(cpu, lambda x, w: F.relu(x) @ w, (x, w), is_blocked=True)
    block = blocked(step)[0].kernel.layout.block
    expected = [operand[first : first + block] @ w for first in range(0, len(x), block)]
    np.testing.assert_array_equal(of_rows, np.concatenate(expected))
    (total,), step = computed(cpu, lambda x, g: F.relu(x).T @ g, (x, g), is_blocked=True)
    block = blocked(step)[0].kernel.layout.block
    expected = [operand[first : first + block].T @ g[first : first + block] for first in range(0, len(x), block)]
    np.testing.assert_array_equal(total, sum(expected[1:], expected[0]))


@settings(max_examples=40)
@given(data=st.data())
def test_blocks_of_any_size_give_the_product(data, open_device):
    count, width, others = (data.draw(st.integers(2, 30)) for _ in range(3))
    x, of_rows, of_inner = random(count, width), random(width, others, seed=1), random(count, others, seed=2)
    functions = {
        "rows": lambda x, w, g, bias: x.tanh() @ w + bias,
        "inner a": lambda x, w, g, bias: x.tanh().T @ g,
        "inner b": lambda x, w, g, bias: g.T @ x.tanh(),
        "columns of a sum": lambda x, w, g, bias: (x + x[:, :1]) @ w,
        "rows of a sum": lambda x, w, g, bias: (x + x[:1]).T @ g,
    }
    function = functions[data.draw(st.sampled_from(sorted(functions)))]
    device, arrays = open_device("cpu"), (x, of_rows, of_inner, random(others, seed=3))
    with mock.patch.multiple(blocked_products, _LEAST=1, _BLOCK=8, _LEAST_ROWS=2, _LEAST_BLOCKS=2):
        (actual,), _ = computed(device, function, arrays, is_blocked=True)
    (whole,), _ = computed(device, function, arrays, is_blocked=False)
    np.testing.assert_allclose(actual, whole, rtol=1e-5, atol=2e-5)


NOT_BLOCKED = {
    "a product by itself": (lambda x: (y := F.gelu(x)) @ y.T, [(ROWS, INNER)]),
    "an operand that others read": (lambda x, w: [(y := F.gelu(x)) @ w, y], [(ROWS, INNER), (INNER, COLUMNS)]),
    "few rows": (lambda x, w: F.gelu(x) @ w, [(64, INNER), (INNER, COLUMNS)]),
    "a batch": (lambda x, w: F.gelu(x) @ w, [(4, ROWS, INNER), (4, INNER, COLUMNS)]),
    "the columns of a factor": (lambda x, w: w @ F.gelu(x).T, [(ROWS, INNER), (COLUMNS, INNER)]),
}


@pytest.mark.parametrize("name", NOT_BLOCKED)
def test_an_operand_is_kept_where_blocks_would_save_nothing(open_device, name):
    function, shapes = NOT_BLOCKED[name]
    _, step = computed(open_device("cpu"), function, [random(*shape) for shape in shapes], is_blocked=True)
    assert not blocked(step)


def test_such_a_product_costs_what_its_parts_cost_and_has_no_shader(open_device):
    arrays = random(ROWS, INNER), random(INNER, COLUMNS), random(COLUMNS)
    _, step = computed(open_device("cpu"), lambda x, w, b: x.tanh() @ w + b, arrays, is_blocked=True)
    (launch,) = blocked(step)
    assert launch.kernel.name == "tanh+matmul+add"
    sizes = tuple(view.nbytes for view in launch.views)
    costs = costs_of(Work(launch.kernel, sizes, launch.kernel.pack(launch.parameters), launch.grid))
    assert (costs.bytes_read, costs.bytes_written) == (sum(array.nbytes for array in arrays), 4 * ROWS * COLUMNS)
    product = 2 * ROWS * INNER * COLUMNS
    assert product + ROWS * COLUMNS < costs.operations < 2 * product
    with pytest.raises(UnsupportedError, match=r"tanh\+matmul\+add"):
        launch.kernel.wgsl()


def test_devices_with_shaders_keep_the_operand(open_device):
    device = open_device("vulkan")
    step = ow.compile(lambda x, w: F.gelu(x) @ w, device=device)
    step(*(ow.tensor(array, device=device) for array in (random(ROWS, INNER), random(INNER, COLUMNS))))
    assert not blocked(step)
