"""Elements by index, and joined parts: tests that the table of operations does not have."""

import math

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import ops
from optirs_web.errors import ShapeError, UnsupportedError
from optirs_web.ops.slices import Pick, put_part


def numbers(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("index", [1, (slice(None), slice(1, 3)), (..., -1), (None, slice(0, 4, 2)), ...])
def test_ints_and_slices_do_no_work(device, index):
    x = ow.tensor(numbers(4, 5), device=device)
    before = device.stats.dispatches, device.stats.copies
    part = ops.getitem(x, index)
    assert (device.stats.dispatches, device.stats.copies) == before
    assert np.array_equal(part.numpy(), x.numpy()[index])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_of_halves_too_an_index_that_names_nothing_gives_nan(device, dtype):
    x = ow.tensor([1.0, 2.0, 3.0], device=device).astype(dtype)
    taken = ops.take(x, ow.tensor([2, 3, -4, -1], device=device, dtype="int32")).astype("float32")
    np.testing.assert_array_equal(taken.numpy(), [3.0, np.nan, np.nan, 3.0])


def test_an_index_in_a_tensor_that_names_nothing_gives_nan_and_has_no_gradient(device):
    table = ow.tensor(numbers(3, 2), device=device, requires_grad=True)
    index = ow.tensor([3, 0, -1, -4, 2**31 - 1], device=device)
    for of_rows, named in ((ops.embedding(table, index), [1]), (ops.take(table, index), [1, 2])):
        assert np.isnan(of_rows.numpy()).all(axis=1).tolist() == [row not in named for row in range(5)]
        (gradient,) = ow.gradients(of_rows, [table], ow.ones((5, 2), device=device))
        assert gradient.numpy().sum() == 2 * len(named)
    whole = ops.take(ow.tensor([7, 8, 9], device=device), index)
    assert whole.tolist() == [0, 7, 9, 0, 0]
    sums = ops.scatter_add(ow.zeros((3,), device=device), index, ow.ones((5,), device=device))
    assert sums.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("rows", "columns", "entries"),
    [(4, 3, 10_000), (2, 5000, 40), (1, 3000, 4097), (700, 2, 700)],
    ids=["by search in turns", "by search", "by sorting", "of many rows"],
)
def test_what_is_gathered_twice_is_added_up_in_a_fixed_order(device, rows, columns, entries):
    rng = np.random.default_rng(entries)
    index = rng.integers(0, columns, (rows, entries), dtype=np.int32)
    weights = rng.standard_normal((rows, entries)).astype(np.float32)
    want = np.zeros((rows, columns))
    np.add.at(want, (np.arange(rows)[:, None], index), weights.astype(np.float64))
    start = ow.zeros((rows, columns), device=device)
    sums = [ops.scatter_add(start, ow.tensor(index, device=device), ow.tensor(weights, device=device)) for _ in "ab"]
    assert np.abs(sums[0].numpy() - want).max() <= 1e-6 * np.abs(want).max() * max(1, math.isqrt(entries // columns))
    assert np.array_equal(sums[0].numpy(), sums[1].numpy())


@pytest.mark.parametrize("axis", [0, 1])
def test_one_index_for_many_elements_has_the_sums_of_rows_as_its_gradient(device, axis):
    x = ow.tensor(numbers(300, 300), device=device, requires_grad=True)
    index = np.random.default_rng(0).integers(0, 300, 3000, dtype=np.int32)
    taken = ops.take(x, ow.tensor(index, device=device), axis)
    weights = np.random.default_rng(1).standard_normal(taken.shape).astype(np.float32)
    (gradient,) = ow.gradients(taken, [x], weights)
    want = np.zeros((300, 300))
    np.add.at(want, index if axis == 0 else (slice(None), index), weights.astype(np.float64))
    assert np.abs(gradient.numpy() - want).max() <= 2e-6 * np.abs(want).max()


def test_parts_lie_in_six_axes(device):
    x = numbers(3, 2, 4, 2, 3, 2)
    index = (slice(1, None), 1, slice(0, 4, 3), slice(0, 1), slice(None, None, 2), slice(1, 2))
    whole = ow.tensor(x, device=device, requires_grad=True)
    part = ops.getitem(whole, index)
    assert np.array_equal(part.numpy(), x[index])
    (gradient,) = ow.gradients(part, [whole], ow.tensor(x[index], device=device))
    want = np.zeros_like(x)
    want[index] = x[index]
    assert np.array_equal(gradient.numpy(), want)


def test_a_part_that_is_repeated_is_placed_without_a_copy(device):
    row = ops.broadcast_to(ow.tensor([1.0, 2.0], device=device), (3, 2))
    before = device.stats.dispatches
    placed = put_part(row, (Pick(0, 1, 3), Pick(1, 2, 2)), (3, 5))
    assert device.stats.dispatches == before + 1
    assert placed.tolist() == [[0.0, 1.0, 0.0, 2.0, 0.0]] * 3


@pytest.mark.parametrize(
    ("dtype", "values"),
    [("int32", [[1, -2], [3, 4]]), ("uint32", [[1, 2], [3, 2**32 - 1]]), ("bool", [[1, 0], [0, 1]])],
)
def test_elements_of_every_type_are_moved(device, dtype, values):
    array = np.array(values).astype(dtype)
    x = ow.tensor(array, device=device, dtype=dtype)
    moves = [
        (ops.getitem(x, (slice(None), 1)), array[:, 1]),
        (ops.flip(x), array[::-1, ::-1]),
        (ops.take(x, [1, 1, 0]), array[[1, 1, 0]]),
        (ops.gather(x, [[0], [1]]), np.take_along_axis(array, np.array([[0], [1]]), 1)),
        (ops.concat([x, x], axis=1), np.concatenate([array, array], 1)),
        (ops.stack([x, x], axis=2), np.stack([array, array], 2)),
        (ops.pad(x, 1, 1), np.pad(array, 1, constant_values=1)),
    ]
    for got, want in moves:
        assert got.dtype == dtype
        assert np.array_equal(got.numpy(), want)


def test_joining_takes_torchs_word_for_an_axis():
    a, b = ow.ones((2, 1), device="cpu"), ow.zeros((2, 1), device="cpu")
    assert ow.concat([a, b], dim=1).tolist() == [[1, 0], [1, 0]]
    assert ow.stack([a, b], dim=-1).tolist() == [[[1, 0]], [[1, 0]]]


def test_an_index_on_another_device_is_told_how_to_move(open_device):
    rows = ow.ones((2, 2), device=open_device("vulkan"))
    with pytest.raises(ShapeError, match=r"a tensor on vulkan and indices on cpu; tensor\(x, device=\.\.\.\) copies"):
        ops.embedding(rows, ow.tensor([0], device="cpu"))


def test_parts_are_joined_where_no_copy_could_begin_in_a_compiled_step(device):
    parts = [numbers(size) for size in (1, 3, 64, 7)]
    joined = ow.compile(lambda *them: ops.concat([tensor * 2.0 for tensor in them]), device=device)
    for _ in range(2):
        assert np.array_equal(joined(*parts).numpy(), 2 * np.concatenate(parts))


# The gradient of a table, by row.


def trained(device, *, sparse, compiled, optimizer="SGD"):
    """A table after three steps in which rows are named twice, and twice in a step."""
    rng = np.random.default_rng(0)
    table = ow.Parameter(rng.standard_normal((50, 4)).astype(np.float32), device=device)
    chosen = getattr(ow.optim, optimizer)([table], lr=0.1)

    def step(index):
        chosen.zero_grad()
        words = ops.embedding(table, index, padding_idx=5, sparse=sparse)
        others = ops.embedding(table, index[0], sparse=sparse)
        (words * words * others).sum().backward()
        chosen.step()

    run = ow.compile(step, device=device) if compiled else step
    for _ in range(3):
        run(ow.tensor(rng.integers(0, 50, (3, 7), dtype=np.int32), device=device))
    return table


@pytest.mark.parametrize("compiled", [False, True])
def test_a_table_with_rows_as_its_gradient_is_trained_alike(device, compiled):
    dense, sparse = (trained(device, sparse=is_sparse, compiled=compiled) for is_sparse in (False, True))
    assert isinstance(sparse.grad, ow.SparseRows)
    assert sparse.grad.indices.shape == (28,)
    np.testing.assert_allclose(sparse.numpy(), dense.numpy(), rtol=1e-5, atol=1e-6)


def test_optimizers_that_take_rows_alone_train_a_table(device):
    assert isinstance(trained(device, sparse=True, compiled=False, optimizer="SparseAdam").grad, ow.SparseRows)


def test_gradients_of_rows_and_whole_ones_are_added(device):
    table = ow.Parameter(numbers(3, 2), device=device)
    (ops.embedding(table, [0, 0], sparse=True).sum() + table.sum()).backward()
    assert table.grad.tolist() == [[3.0, 3.0], [1.0, 1.0], [1.0, 1.0]]
    ops.embedding(table, [2], sparse=True).sum().backward()
    assert table.grad.tolist() == [[3.0, 3.0], [1.0, 1.0], [2.0, 2.0]]


def test_a_gradient_that_is_differentiated_in_turn_is_whole(device):
    table = ow.Parameter(numbers(3, 2), device=device)
    rows = ops.embedding(table, [1, 1], sparse=True)
    (first,) = ow.gradients((rows * rows * rows).sum(), [table], create_graph=True)
    assert isinstance(first, ow.Tensor)
    (second,) = ow.gradients(first.sum(), [table])
    np.testing.assert_allclose(second.to_dense().numpy()[1], 12 * table.numpy()[1], rtol=1e-6)


# What is refused.


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: ops.getitem(x, 2), ShapeError, "index 2 is out of range for axis 0 of shape"),
        (lambda x: ops.getitem(x, (0, -4)), ShapeError, "index -4 is out of range for axis 1"),
        (lambda x: ops.getitem(x, (0, 0, 0)), ShapeError, "3 indices for a tensor of shape"),
        (lambda x: ops.getitem(x, (..., ...)), ShapeError, "only one ellipsis"),
        (lambda x: ops.getitem(x, slice(None, None, 0)), ShapeError, "is not a slice of an axis of 2"),
        (lambda x: ops.getitem(x, True), UnsupportedError, "a bool is not an index"),
        (lambda x: ops.getitem(x, [True, False]), UnsupportedError, "by a mask would have a shape unknown"),
        (lambda x: ops.getitem(x, x.numpy() > 0), UnsupportedError, "by a mask"),
        (lambda x: ops.getitem(x, [0.0]), UnsupportedError, "needs int32 indices, not float32"),
        (lambda x: ops.getitem(x, ([0], [1])), UnsupportedError, "`gather` takes an index for each element"),
        (lambda x: ops.getitem(x, (0, None, [1])), UnsupportedError, "are not adjacent in an index"),
        (lambda x: ops.getitem(x, [0, 2]), ShapeError, "index 2 is out of range for an axis of 2"),
        (lambda x: ops.take(x, [-3]), ShapeError, "index -3 is out of range for an axis of 2"),
        (lambda x: ops.take(x, [0], 2), ShapeError, "axis 2 is out of range"),
        (lambda x: ops.take(x, x), UnsupportedError, "take needs int32 indices, not float32"),
        (lambda x: ops.gather(x, [0, 1]), ShapeError, r"gather along axis 1 needs indices of the shape \(2, 3\)"),
        (lambda x: ops.scatter_add(x, [[0], [0]], x), ShapeError, "as many indices as elements"),
        (lambda x: ops.scatter_add(x, [[0], [0]], ow.tensor([[1], [1]], device="cpu")), UnsupportedError, "float32"),
        (lambda x: ops.embedding(ow.ones((), device="cpu"), [0]), ShapeError, "a table with rows"),
        (lambda x: ops.embedding(x, [0], padding_idx=2), ShapeError, "padding_idx 2 is not a row of a table"),
        (lambda x: ops.embedding(x * 1.0, [0], sparse=True), UnsupportedError, "not computed from others"),
        (lambda x: ops.flip(x, 2), ShapeError, "axis 2 is out of range"),
        (lambda x: ops.concat([]), ShapeError, "concat needs at least one tensor"),
        (lambda x: ops.concat([x, x.T]), ShapeError, "shapes that differ there only"),
        (lambda x: ops.concat([x, ops.take(ow.tensor([1], device="cpu"), [0])]), UnsupportedError, "of one dtype"),
        (lambda x: ops.stack([x, x.T]), ShapeError, "tensors of one shape"),
        (lambda x: ops.split(x, 2, axis=1), ShapeError, "has no 2 equal parts; see `chunk`"),
        (lambda x: ops.split(x, [2, 1], axis=1), ShapeError, r"at \[2, 1\]: indices from 0 to 3 in order"),
        (lambda x: ops.chunk(x, 0), ShapeError, "split into 1 part or more"),
        (lambda x: ops.pad(x, -1), ShapeError, "from 0 on"),
        (lambda x: ops.pad(x, ((1, 1), (1, 1), (1, 1))), ShapeError, "does not surround the 2 axes"),
        (lambda x: ops.pad(x, "ab"), ShapeError, "pad_width must be a number"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call(ow.ones((2, 3), device="cpu", requires_grad=True))
