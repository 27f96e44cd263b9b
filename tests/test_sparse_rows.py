"""`SparseRows`: how entries are added up, what they are as a gradient, and what is refused."""

import numpy as np
import pytest
from optimizer_problems import relative_error
from sparse_problems import entries

import optirs_web as ow
from optirs_web.errors import ShapeError, UnsupportedError


@pytest.mark.parametrize(
    ("count", "shape"),
    [
        (1, (3, 2)),
        (5, (3,)),
        (64, (10, 3)),
        (65, (10, 3)),
        (1000, (1, 5)),
        (2048, (100, 4)),
        (2049, (100, 4)),
        (5000, (3, 2)),
        (9000, (70_000, 3, 2)),
    ],
)
def test_entries_of_a_row_are_added_up_to_the_same_bits_at_every_run(numerics, count, shape):
    rng = np.random.default_rng(count)
    rows, values = entries(rng, count, shape)
    # On the device nobody looks at the numbers: those that are no row are left out.
    rows[:: max(3, count // 7)] = -1
    rows[1 :: max(5, count // 11)] = rng.choice([shape[0], -7, 2**31 - 1, -(2**31)])
    values[(rows < 0) | (rows >= shape[0])] = np.nan
    want = np.zeros(shape)
    kept = (rows >= 0) & (rows < shape[0])
    np.add.at(want, rows[kept], values[kept].astype(np.float64))
    dense, again, table, others = numerics("sparse_sums", rows, values, shape)
    assert relative_error(dense, want) <= 1e-6
    assert np.array_equal(dense, again)
    assert np.array_equal(table, np.float32(1) - np.asarray(dense))
    assert others == [1.0, 1.0]


def test_a_parameter_has_rows_as_its_gradient(device):
    param = ow.Parameter(np.ones((3, 2), np.float32), device=device)
    param.grad = ow.SparseRows([2], [[4.0, 8.0]], (3, 2), device=device)
    optimizer = ow.optim.SGD([param], lr=0.5)
    optimizer.step()
    assert param.tolist() == [[1.0, 1.0], [1.0, 1.0], [-1.0, -3.0]]
    assert repr(param.grad) == f"<SparseRows 1 of (3, 2) on {device.name}>"
    (param * 3.0).sum().backward()  # is added to it
    assert param.grad.tolist() == [[3.0, 3.0], [3.0, 3.0], [7.0, 11.0]]
    param.grad = ow.SparseRows([2], [[4.0, 8.0]], (3, 2), device=device)
    optimizer.zero_grad(set_to_none=False)
    assert not param.grad.to_dense().numpy().any()
    optimizer.step()
    assert param.tolist() == [[1.0, 1.0], [1.0, 1.0], [-1.0, -3.0]]
    optimizer.zero_grad()
    assert param.grad is None


def test_rows_of_another_device_are_copied(open_device):
    param = ow.Parameter([[1.0], [1.0]], device=open_device("vulkan"))
    grad = ow.SparseRows([1], [[1.0]], (2, 1), device="cpu")
    ow.optim.SGD([param], lr=1.0).step(grads=[grad])
    assert param.tolist() == [[1.0], [0.0]]


# What is refused.


@pytest.mark.parametrize(
    ("optimizer", "options", "message"),
    [
        ("Adam", {}, "Adam does not support sparse gradients, please consider SparseAdam instead"),
        ("RMSprop", {}, "RMSprop does not support sparse gradients"),
        ("Adagrad", {"weight_decay": 0.1}, "weight_decay option is not compatible with sparse gradients"),
        ("SGD", {"weight_decay": 0.1}, "weight_decay option is not compatible with sparse gradients"),
        ("SparseAdam", {"transforms": [ow.optim.transforms.add_noise(1.0)]}, "add_noise changes all rows"),
        ("SGD", {"transforms": [ow.optim.transforms.add_decayed_weights(0.1)]}, "add_decayed_weights changes all rows"),
        ("Adagrad", {"transforms": [ow.optim.transforms.accumulate(2)]}, "accumulate keeps whole gradients"),
    ],
)
def test_rows_are_refused_where_torch_refuses_them_in_its_words(device, optimizer, options, message):
    param = ow.Parameter(np.ones((3, 2), np.float32), device=device)
    mine = getattr(ow.optim, optimizer)([param], **options)
    with pytest.raises(UnsupportedError, match=message):
        mine.step(grads=[ow.SparseRows([0], [[1.0, 1.0]], (3, 2))])
    assert param.tolist() == [[1.0, 1.0]] * 3


def test_sparse_adam_takes_no_dense_gradient(device):
    param = ow.Parameter([[1.0]], device=device)
    with pytest.raises(
        UnsupportedError, match="SparseAdam does not support dense gradients, please consider Adam instead"
    ):
        ow.optim.SparseAdam([param]).step(grads=[[[1.0]]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "Invalid learning rate: 0.0"),
        ({"eps": 0.0}, "Invalid epsilon value: 0.0"),
        ({"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
        ({"betas": (0.9, -0.1)}, "Invalid beta parameter at index 1: -0.1"),
    ],
)
def test_options_of_sparse_adam_out_of_range_are_refused_in_torchs_words(options, message):
    with pytest.raises(ValueError, match=message):
        ow.optim.SparseAdam([ow.Parameter([1.0], device="cpu")], **options)


@pytest.mark.parametrize(
    ("rows", "values", "shape", "error", "message"),
    [
        ([3], [[1.0, 1.0]], (3, 2), ShapeError, "names row 3 of a parameter that has 3"),
        ([0, -2], [[1.0, 1.0]] * 2, (3, 2), ShapeError, "names row -2 of a parameter that has 3; -1 is no row"),
        ([0], [[1.0, 1.0, 1.0]], (3, 2), ShapeError, r"have the shape \(1, 2\), not \(1, 3\)"),
        ([0, 1], [[1.0, 1.0]], (3, 2), ShapeError, r"have the shape \(2, 2\), not \(1, 2\)"),
        ([[0]], [[1.0, 1.0]], (3, 2), ShapeError, r"have the shape \(n,\), not \(1, 1\)"),
        ([0], [1.0], (), ShapeError, "a tensor without axes has no rows"),
        (np.zeros(1, np.float32), [[1.0, 1.0]], (3, 2), UnsupportedError, "int32, not float32"),
        (ow.tensor([0.0], device="cpu"), [[1.0, 1.0]], (3, 2), UnsupportedError, "int32, not float32"),
        ([0], ow.tensor([[1, 1]], device="cpu"), (3, 2), UnsupportedError, "float32, not int32"),
    ],
)
def test_what_is_no_gradient_of_rows_is_refused(rows, values, shape, error, message):
    with pytest.raises(error, match=message):
        ow.SparseRows(rows, values, shape, device="cpu")


def test_rows_of_a_parameter_of_another_shape_are_refused(device):
    param = ow.Parameter(np.ones((3, 2), np.float32), device=device)
    with pytest.raises(ShapeError, match=r"shape \(4, 2\), its parameter \(3, 2\)"):
        ow.optim.SGD([param]).step(grads=[ow.SparseRows([0], [[1.0, 1.0]], (4, 2))])
