"""Fusion in compiled steps: fewer dispatches, the same numbers, and nothing read after it was overwritten."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optirs_web as ow
from optirs_web import ops
from optirs_web.errors import UnsupportedError
from optirs_web.ops.slices import Pick, put_part, whole_axis
from optirs_web.runtime.kernels import interface_of
from optirs_web.runtime.launches import Launch
from optirs_web.runtime.routines import Interface


def arrays(*shapes):
    rng = np.random.default_rng(len(shapes))
    return [rng.uniform(0.5, 1.5, shape).astype(np.float32) for shape in shapes]


def names(step):
    """Return the names of the kernels and copies of a compiled step."""
    return [launch.kernel.name if isinstance(launch, Launch) else "copy" for launch in step.program.launches]


WIDE = 192  # columns and rows of products that are fused with what follows them

# A function, the shapes of its arguments, and what a replay of it runs.
STEPS = {
    "a chain": (lambda a, b: ((a + b) * a).exp().relu(), [(6, 5), (6, 5)], ["add+multiply+exp+relu"]),
    "a row and a column": (lambda a, b, c: (a + b) * c, [(6, 5), (5,), (6, 1)], ["add+multiply"]),
    "numbers": (lambda a: 2.0 / (a * 3.0 - 1.0), [(7,)], ["multiply+subtract+divide"]),
    "a value by itself": (lambda a: (a + 1.0) * (a + 1.0), [(9,)], ["add+add+multiply"]),
    "one value used twice": (lambda a: (lambda b: b * b)(a + 1.0), [(9,)], ["add+multiply"]),
    "a linear layer": (lambda x, w, b: (x @ w + b).relu(), [(WIDE, 5), (5, WIDE), (WIDE,)], ["matmul+add+relu"]),
    "a batch of products": (
        lambda x, w, b: x @ w * 0.5 + b, [(3, WIDE, 5), (3, 5, WIDE), (WIDE, WIDE)], ["matmul+multiply+add"]
    ),
    "a residual": (lambda x, w: x + (x @ w).relu(), [(WIDE, WIDE), (WIDE, WIDE)], ["matmul+relu+add"]),
    "before a sum": (lambda a, b: (a * b).sum(axis=1), [(6, 5), (6, 5)], ["multiply+sum"]),
    "after a sum": (lambda a: a.sum(axis=0) * 2.0 + 1.0, [(6, 5)], ["sum+multiply+add"]),
    "the sum of what is broadcast": (lambda a: (a.reshape(6, 1) * ow.ones((5,), device=a.device)).sum(), [(6,)],
                                     ["identity_f32+multiply+sum"]),
    "after the mean of windows": (lambda a: ops.avg_pool2d(a, 2).relu(), [(2, 3, 6, 4)], ["window_sums+multiply+relu"]),
    "after a fold": (lambda a, b: ops.fold(a, (5, 4), 2) * b, [(1, 12, 12), (1, 3, 5, 4)], ["fold+multiply"]),
    "shapes between": (lambda a, b: (a + 1.0).reshape(5, 6) * b, [(6, 5), (5, 6)], ["add+multiply"]),
    "shapes that do not nest": (
        lambda a, b, c: (a + b).reshape(4, 15) * c, [(6, 10), (10,), (15,)], ["add", "multiply"]
    ),
    "both of two values": (lambda a: [a + 1.0, (a + 1.0) * 2.0], [(9,)], ["add", "add+multiply"]),
    "a value and what follows": (lambda a: (lambda b: [b, b * 2.0])(a + 1.0), [(9,)], ["add+multiply"]),
    "a product and what follows": (
        lambda a, b: (lambda c: [c, c.relu()])(a @ b), [(WIDE, 5), (5, WIDE)], ["matmul+relu"]
    ),
    "a product too small to be worth a kernel": (lambda x, w: (x @ w).relu(), [(6, 5), (5, 4)], ["matmul", "relu"]),
    "its own transpose": (lambda a: (lambda b: b + b.T)(a * 2.0), [(5, 5)], ["multiply", "add"]),
    "its own first row": (lambda a: (lambda b: b + b[:1].reshape(5))(a * 2.0), [(4, 5)], ["multiply", "add"]),
    "one element of it": (lambda a: (a * 2.0)[0, None].relu(), [(4,)], ["multiply", "relu"]),
    "a square after a sum": (lambda a, b: a.sum(axis=1) + b * b, [(6, 5), (6,)], ["sum+multiply+add"]),
    "a copy that is copied": (lambda a: ops.concat([a.clone(), a]), [(16, 8)], ["copy", "copy"]),
    "no reader": (lambda a: [a + 1.0, (a * 3.0).exp()][0], [(9,)], ["add"]),
    "comparisons": (lambda a, b: ops.where(a > b, a, b * 2.0), [(9,), (9,)], ["multiply+less_f32+where_f32"]),
    "a comparison of what is computed": (lambda a, b: (a + b) * 2.0 > b, [(9,), (9,)], ["add+multiply+less_f32"]),
    "results of two types": (
        lambda a, b: [(a + b) * 2.0 > b, (a - b).exp()], [(9,), (9,)], ["add+multiply+less_f32", "subtract+exp"]
    ),
    "a chain and its condition": (
        lambda a, b: (lambda c: [c > b, c * b])(a.exp() - 1.0), [(9,), (9,)],
        ["exp+subtract+less_f32", "exp+subtract+multiply"],
    ),
    "rows of a table": (
        lambda a, b: (ops.take(a, [2, 0, -1], 0) + b).relu(), [(4, 5), (5,)], ["place_from_either_end+gather+add+relu"]
    ),
    "padding": (lambda a, b: ops.pad(a, 1, 2.0) * b, [(4, 5), (6, 7)], ["place+multiply"]),
    "two paddings of one tensor": (lambda a: ops.pad(a, 1) - ops.pad(a, 1, 1.5), [(4, 5)], ["place+place+subtract"]),
    "padding, and axes within it": (
        lambda a, b: ops.pad(a, ((1, 0), (3, 6))).reshape(3, 4, 3) * b, [(2, 3), (4, 3)], ["place+multiply"]
    ),
    "padding, and axes across its edge": (
        lambda a, b: ops.pad(a, ((1, 0), (4, 5))).reshape(3, 4, 3) * b, [(2, 3), (4, 3)], ["place+multiply"]
    ),
    "padding between": (lambda a, b: (ops.pad(a * 2.0, 1) + b).relu(), [(4,), (6,)], ["multiply", "place+add+relu"]),
    "a gradient of every second element": (
        lambda a, b: put_part(a, (Pick(1, 2, 3), whole_axis(4)), (7, 4)) + b, [(3, 4), (7, 4)], ["place+add"]
    ),
    "padding after a product": (
        lambda x, w, b: (x @ w) + ops.pad(b, ((2, 1), (1, 0))), [(WIDE, 5), (5, WIDE), (WIDE - 3, WIDE - 1)],
        ["matmul+place+add"]
    ),
    "what is joined": (lambda a, b: ops.concat([a.exp(), b * 2.0], 1), [(4, 5), (4, 3)], ["exp", "multiply"]),
    "views that are joined": (lambda a, b: ops.concat([a.T, b[:, ::2]], 1), [(5, 4), (4, 6)], ["join", "join"]),
    "a join that is read and returned": (
        lambda a, b: (lambda c: [c, c * 2.0])(ops.concat([a.exp(), b], 1)), [(4, 5), (4, 3)],
        ["exp", "join", "multiply"]
    ),
    "one axis too many": (
        lambda a, b: ops.reshape(ops.permute(a.reshape(3, 1, 4), (1, 0, 2)), (12,)) * b, [(3, 4), (12,)], ["multiply"]
    ),
    "no elements": (lambda a: (a + 1.0) * 2.0, [(0, 3)], []),
    "one element": (lambda a, b: (a + b) * 2.0, [(), (1, 1)], ["add+multiply"]),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_compiled_step_runs_less_and_gives_the_same(device, name):
    function, shapes, expected = STEPS[name]
    inputs = [ow.tensor(array, device=device) for array in arrays(*shapes)]
    step = ow.compile(function, device=device)
    results, eager = step(*inputs), function(*inputs)
    for got, want in zip(
        *([result] if isinstance(result, ow.Tensor) else result for result in (results, eager)), strict=True
    ):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    assert names(step) == expected


@pytest.mark.parametrize("name", STEPS)
def test_a_launch_binds_what_its_shader_has(device, name):
    step, shapes, _ = STEPS[name]
    compiled = ow.compile(step, device=device.name)
    compiled(*[ow.tensor(array, device=device) for array in arrays(*shapes)])
    for launch in compiled.program.launches:
        if isinstance(launch, Launch):
            assert Interface(launch.kernel.bindings, launch.kernel.parameters) == interface_of(launch.kernel.module)


@pytest.mark.parametrize(
    ("shape", "of_column"),
    [((1,), ["x0"]), ((190,), ["x0"]), ((193, 1), []), ((3, 1, 1), ["x0"]), ((3, 1, 190), ["x0"]), ((3, 193, 1), []),
     ((193, 190), []), ((3, 193, 190), [])],
)  # fmt: skip
def test_after_a_product_what_all_rows_share_is_read_once_for_a_column(device, shape, of_column):
    x, w, b = arrays((3, 193, 5), (3, 5, 190), shape)
    tensors = [ow.tensor(array, device=device) for array in (x, w, b)]
    step = ow.compile(lambda x, w, b: x @ w - b, device=device)
    step(*tensors)

    actual = step(*tensors).numpy()

    np.testing.assert_allclose(actual, x.astype(np.float64) @ w - b, rtol=1e-6, atol=1e-6)
    (launch,) = step.program.launches
    assert list(launch.kernel.places.of_column) == of_column


def test_after_a_product_axes_may_end_within_its_rows(device):
    x, w, b = arrays((579, 5), (5, 190), (95,))
    tensors = [ow.tensor(array, device=device) for array in (x, w, b)]
    step = ow.compile(lambda x, w, b: (x @ w).reshape(-1, 95) * b, device=device)
    step(*tensors)

    actual = step(*tensors).numpy()

    np.testing.assert_allclose(actual, (x.astype(np.float64) @ w).reshape(-1, 95) * b, rtol=1e-6)
    (launch,) = step.program.launches
    assert launch.kernel.places.of_column == ()


def test_without_fusion_a_step_is_what_its_operations_are_bit_for_bit(device):
    x, w = (ow.tensor(array, device=device) for array in arrays((6, 5), (5, 6)))
    function = lambda x, w: ((x @ w) * 0.3 + 0.7).exp()  # noqa: E731
    step = ow.compile(function, device=device, fuse=False)
    assert step(x, w).tolist() == function(x, w).tolist()
    assert names(step) == ["matmul", "multiply", "add", "exp"]


def test_a_step_reads_what_was_there_before_an_optimizer_changed_it(device):
    w = ow.Parameter([3.0, 4.0], device=device)
    optimizer = ow.optim.SGD([w], lr=1.0)

    def step(x):
        doubled = w.detach() * 2.0
        optimizer.step(grads=[x])
        return doubled + 1.0, w.detach() * 2.0

    before, after = ow.compile(step, device=device)(ow.tensor([1.0, 1.0], device=device))
    assert (before.tolist(), after.tolist()) == ([7.0, 9.0], [4.0, 6.0])


def test_gradients_are_written_where_the_optimizer_looks_for_them(device):
    w = ow.Parameter(np.ones((4, 3), np.float32), device=device)
    optimizer = ow.optim.SGD([w], lr=0.5)

    def train_step(x):
        optimizer.zero_grad()
        (x @ w).sum().backward()
        optimizer.step()

    step = ow.compile(train_step, device=device)
    step(np.ones((2, 4), np.float32))
    assert "copy" not in names(step)
    assert w.numpy().tolist() == [[0.0] * 3] * 4
    assert w.grad.numpy().tolist() == [[2.0] * 3] * 4


def test_gradients_add_up_over_two_losses_in_one_step(device):
    w = ow.Parameter([1.0, 2.0], device=device)
    ow.optim.SGD([w], lr=0.0)

    def two_losses(x):
        w.grad = None
        (w * x).sum().backward()
        (w * w).sum().backward()

    ow.compile(two_losses, device=device)(np.array([10.0, 20.0], np.float32))
    assert w.grad.tolist() == [12.0, 24.0]


def test_more_operands_than_a_kernel_binds_take_more_kernels(device):
    inputs = [ow.tensor(array, device=device) for array in arrays(*[(5,)] * 20)]

    def total(*tensors):
        result = tensors[0]
        for tensor in tensors[1:]:
            result = result + tensor
        return result

    step = ow.compile(total, device=device)
    np.testing.assert_allclose(step(*inputs).numpy(), sum(input_.numpy() for input_ in inputs), rtol=1e-6)
    assert len(names(step)) < 19


def test_memory_of_a_step_is_shared_by_what_is_not_needed_at_once(device):
    def deep(x):
        for _ in range(20):
            x = (x @ x) @ x
        return x

    x = ow.tensor(np.eye(64, dtype=np.float32), device=device)
    step = ow.compile(deep, device=device)
    np.testing.assert_array_equal(step(x).numpy(), np.eye(64))
    assert step.program.nbytes <= 3 * x.size * 4


def test_explain_returns_what_became_of_a_step(capsys):
    step = ow.compile(lambda x, w: (x @ w).relu(), device="cpu")
    with pytest.raises(UnsupportedError, match="call it once"):
        ow.explain(step)
    with pytest.raises(TypeError, match=r"what optirs_web\.compile returns"):
        ow.explain(lambda x: x)
    step(*arrays((WIDE, 4), (4, WIDE)))
    actual = ow.explain(step)
    assert (actual.called.dispatches, actual.replayed.dispatches) == (2, 1)
    assert actual.kernels == ("matmul+relu",)
    assert actual.replayed.bytes < actual.called.bytes
    assert "1 × matmul+relu" in str(actual)
    assert capsys.readouterr().out == ""


def test_the_name_of_a_long_fused_kernel_ends_with_a_whole_function():
    step = ow.compile(
        lambda x: ((x.sigmoid() * x).tanh() + x.square()).sigmoid().tanh().square().sigmoid().tanh().square(),
        device="cpu",
    )
    step(*arrays((WIDE, 4)))
    (name,) = ow.explain(step).kernels
    *functions, last = name.split("+")
    assert set(functions) <= {"sigmoid", "multiply", "tanh", "add", "square"}
    assert last == "..."
    assert len(name) <= 64


# Any step made of these gives the same compiled as it does eagerly.

MAKERS = [
    lambda a, other: a + other,
    lambda a, other: a * 0.5 - other,
    lambda a, other: a.relu() * other,
    lambda a, other: a @ other * 0.1,
    lambda array, other: array.T + other,
    lambda a, other: a.sum(axis=0) * 0.1 + other,
    lambda a, other: a.sum(axis=1, keepdims=True) * 0.1 * other,
    lambda array, other: array.reshape(2, 18).sum() * 0.01 + other,
    lambda a, other: a + other[:1].reshape(6) * other[0, 0].relu(),
    lambda a, other: ops.concat([other[3:].clone(), a[:3].clone()]),
    lambda array, other: (array.reshape(9, 4) + 1.0).reshape(6, 6) * other,
    lambda a, other: (a * other > other).astype("float32") - other.T,
    lambda a, other: ops.where(a + other < 0.3, a.T, other * 2.0),
    lambda a, other: (ops.take(a, [5, 0, 0, 3, -2, 1], 0) + 1.0) * other,
    lambda a, other: ops.pad(a[1:5, 2:], ((2, 0), (1, 1)), 0.3) * other,
    lambda a, other: ops.concat([a[:, 2:] * 0.5, other.T[:, :2]], axis=1),
    lambda a, other: ops.concat([(a * other).sqrt()], axis=1),
    lambda a, other: put_part(a[:3, ::2] + 1.0, (Pick(1, 2, 3), Pick(0, 2, 3)), (6, 6)) + other,
]


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, len(MAKERS) - 1), st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=14
    ),
    kept=st.sets(st.integers(0, 15), max_size=3),
)
def test_any_step_gives_the_same_compiled(steps, kept):
    def run(a, b):
        values = [a, b]
        for maker, one, other in steps:
            values.append(MAKERS[maker](values[one % len(values)], values[other % len(values)]).relu())
        results = [values[number % len(values)] for number in sorted(kept)]
        return [values[-1], *(value * 1.0 for value in results), *(value * 3.0 > 0.5 for value in results)]

    inputs = [ow.tensor(array, device="cpu") for array in arrays((6, 6), (6, 6))]
    compiled = ow.compile(run, device="cpu")(*inputs)
    for got, want in zip(compiled, run(*inputs), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-6)
