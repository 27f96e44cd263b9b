"""Operations at their edges: sizes, values that are not finite, devices, types; and bad calls.

Their values and derivatives are compared in `test_operation_derivatives.py`.
"""

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import ShapeError, UnsupportedError


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 1_000_003])
def test_long_sums_stay_accurate(numerics, size):
    values = np.random.default_rng(0).random(size, np.float32)
    got = numerics("long_sum", values)
    assert got == pytest.approx(values.sum(dtype=np.float64), rel=1e-6)


def test_grids_beyond_65535_workgroups(numerics):
    values = np.arange(3 * 200_001, dtype=np.float32).reshape(-1, 3) % 1000
    got = numerics("row_sums", values)  # one workgroup for each of 200,001 sums
    np.testing.assert_array_equal(got, values.sum(axis=1))


@pytest.mark.parametrize("first", [0, 1, 2, 4])
def test_a_part_is_read_from_its_start_beside_what_is_broadcast(device, first):
    rows, row = np.arange(24, dtype=np.float32).reshape(6, 4), np.arange(4, dtype=np.float32)
    x, w = ow.tensor(rows, device=device), ow.tensor(row, device=device)
    for part in (x[first:], x[first:][:1]):
        np.testing.assert_array_equal((part + w).numpy(), part.numpy() + row)
        np.testing.assert_array_equal((part * part).numpy(), part.numpy() ** 2)


def test_elementwise_over_more_bytes_than_a_kernel_can_see_at_once(device):
    size = (128 << 20) // 4 + 1029  # lavapipe shows a kernel 128 MiB of a buffer
    x = ow.ones((size,), device=device) + 1.0
    got = (x * x).relu().numpy()
    assert got[0] == got[-1] == 4.0
    assert (got == 4.0).all()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_tensors_without_elements(device, shape):
    x = ow.tensor(np.zeros(shape, np.float32), device=device, requires_grad=True)
    y = ((x + 1.0) * x).sum()
    y.backward()
    assert y.item() == 0
    assert x.grad.numpy().shape == shape
    assert ow.zeros((shape[0], 0), device=device).numpy().shape == (shape[0], 0)


@pytest.mark.parametrize(("left", "right"), [((17, 7, 5), (5, 0)), ((2, 0, 5), (5, 3)), ((2, 3, 0), (0, 4))])
def test_products_with_an_empty_axis_have_two_derivatives(left, right, device):
    a, b = (ow.tensor(np.ones(shape, np.float32), device=device, requires_grad=True) for shape in (left, right))
    first = ow.gradients((a @ b).square().sum(), [a, b], create_graph=True)
    second = ow.gradients(sum(grad.square().sum() for grad in first), [a, b])
    assert [array.shape for array in (*first, *second)] == [left, right] * 2


def test_matmul_with_no_inner_elements_is_zero(device):
    a, b = ow.zeros((2, 0), device=device), ow.zeros((0, 3), device=device)
    assert (a @ b).tolist() == [[0.0] * 3] * 2


def test_a_class_that_does_not_exist_makes_the_loss_nan(device):
    for labels in ([0, 3], [-1, 0]):
        logits = ow.zeros((2, 3), device=device, requires_grad=True)
        loss = ow.cross_entropy(logits, labels)
        loss.backward()
        assert np.isnan(loss.item())
        assert np.isnan(logits.grad.numpy()).any()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x + ow.zeros((4,), device="cpu"), ShapeError, "cannot be broadcast together"),
        (lambda x: x @ ow.zeros((4, 2), device="cpu"), ShapeError, "3 columns meet 4 rows"),
        (lambda x: x @ ow.zeros((), device="cpu"), ShapeError, "needs operands with axes"),
        (lambda x: x.sum(axis=2), ShapeError, "axis 2 is out of range"),
        (lambda x: x.sum(axis=(0, -2)), ShapeError, "occurs twice"),
        (lambda x: x.softmax(axis=(0, 1)), ShapeError, r"softmax takes one axis, not \(0, 1\)"),
        (lambda x: x.reshape(5), ShapeError, r"\(2, 3\) cannot be reshaped to \(5,\)"),
        (lambda x: x.reshape(-1, 4), ShapeError, "cannot be reshaped"),
        (lambda x: x.permute(0, 0), ShapeError, "not a permutation of the 2 axes"),
        (lambda x: x.transpose(0, 2), ShapeError, "no axes 0 and 2"),
        (lambda x: ow.cross_entropy(x, [0, 1, 2]), ShapeError, "cross_entropy needs"),
        (lambda x: ow.cross_entropy(x, [0.0, 1.0]), UnsupportedError, "int32 class numbers"),
        (lambda x: x + ow.arange(3, device="cpu"), UnsupportedError, "arithmetic needs float32"),
        (lambda x: x.item(), ShapeError, "one element"),
        (lambda x: x.backward(), UnsupportedError, "requires a gradient"),
        (lambda x: ow.zeros((0, 3), device="cpu").mean(), ShapeError, "no elements"),
        (lambda x: ow.zeros((-1,), device="cpu"), ShapeError, "ints from 0"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call(ow.zeros((2, 3), device="cpu"))


def test_tensors_on_two_devices_are_refused(open_device):
    vulkan = open_device("vulkan")
    with pytest.raises(ShapeError, match="move them to one device"):
        ow.zeros((2,), device="cpu") + ow.zeros((2,), device=vulkan)


def test_gradients_come_back_from_another_device(open_device):
    x = ow.tensor([1.0, 2.0], device=open_device("cpu"), requires_grad=True)
    there = ow.ops.to_device(x * x, open_device("vulkan"))
    (there * there).sum().backward()
    assert there.device is open_device("vulkan")
    assert x.grad.tolist() == [4.0, 32.0]
    assert x.grad.device is x.device


def test_nan_and_infinity_pass_through_relu_as_in_torch(numerics):
    value, gradient = numerics("relu_and_gradient", np.array([np.nan, np.inf, -np.inf, -0.0], np.float32))
    np.testing.assert_array_equal(value, [np.nan, np.inf, 0.0, 0.0])
    np.testing.assert_array_equal(gradient, [1.0, 1.0, 0.0, 0.0])


def test_nan_and_infinity_in_arithmetic_are_numpys(numerics):
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 3e37], np.float32)  # no quotient is subnormal
    a, b = np.meshgrid(values, values)
    with np.errstate(all="ignore"):
        wants = [a + b, a - b, a * b, a / b]
    for got, want in zip(numerics("arithmetic", a, b), wants, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(), lambda x: x.mean(), lambda x: x.exp(), lambda x: x.relu(), lambda x: -x,
        lambda x: x.log_softmax(), lambda x: x + x, lambda x: x * 2.0, lambda x: 1.0 / x,
        lambda x: x.reshape(1, 3) @ x.reshape(3, 1), lambda x: ow.cross_entropy(x.reshape(1, 3), [0]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_integers_are_refused_where_their_bits_would_be_read_as_floats(device, call, dtype):
    with pytest.raises(UnsupportedError, match=r"needs .*(float32|f32)"):
        call(ow.tensor([1, 2, 3], device=device, dtype=dtype))


@pytest.mark.parametrize("data", [[1, 2], [True, False]])
def test_a_sum_of_integers_or_bools_says_how_to_get_floats(data):
    x = ow.tensor(data, device="cpu")
    with pytest.raises(
        UnsupportedError, match=rf"sum needs float32 tensors, not .*{x.dtype}.*; convert it by \.astype\('float32'\)"
    ):
        x.sum()
    assert x.astype("float32").sum().item() == sum(data)


def test_integers_can_be_moved_about(device):
    x = ow.tensor([[1, 2, 3], [4, 5, 6]], device=device)
    assert x.T.reshape(6).tolist() == [1, 4, 2, 5, 3, 6]


def test_numpy_on_the_left_leaves_the_work_to_the_tensor(device):
    x = ow.tensor([[1.0, 2.0]], device=device, requires_grad=True)
    array = np.array([[3.0, 4.0]], np.float32)
    for got, want in [
        (array + x, [[4.0, 6.0]]),
        (array - x, [[2.0, 2.0]]),
        (array * x, [[3.0, 8.0]]),
        (array / x, [[3.0, 2.0]]),
        (np.float32(2.0) * x, [[2.0, 4.0]]),
        (array.T @ x, [[3.0, 6.0], [4.0, 8.0]]),
        (x @ array.T, [[11.0]]),
    ]:
        assert isinstance(got, ow.Tensor)
        assert got.requires_grad
        assert got.tolist() == want


def test_numbers_beyond_float32_are_infinite_and_numpys_integers_are_integers(device):
    x = ow.ones((2, 2), device=device)
    assert (x * 1e39).tolist() == (x * 10**400).tolist() == [[np.inf] * 2] * 2
    assert (x * 3.4028235e38).numpy()[0, 0] == np.float32(3.4028235e38)
    assert ow.zeros((np.int64(1), 2), device=device).reshape(np.int64(2)).sum(axis=np.int64(0)).item() == 0.0
    assert ow.tensor([np.float32(1.5), 2], device=device).tolist() == [1.5, 2.0]


def test_gradients_that_nobody_asked_for_are_not_computed(device):
    x = ow.ones((4,), device=device, requires_grad=True)
    y = (x * 0.5).sum()
    before = device.stats.copy()
    y.backward()
    assert (
        device.stats - before
    ).dispatches == 2  # the gradient of y, which is broadcast without a copy, and the product
