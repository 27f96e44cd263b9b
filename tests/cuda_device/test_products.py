"""Products by cuBLAS, which is in software here too."""

import numpy as np
import pytest
import software_cuda
from software_cuda import amounts, opened

import optirs_web as ow
from optirs_web.errors import DeviceNotAvailableError
from optirs_web.runtime import open_devices
from optirs_web.runtime.kernels import cooperative

HALVES = ["float16", "bfloat16"]
SPACING = {"float32": 1e-5, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.fixture
def with_cublas(driver, monkeypatch):
    """A device that finds it, and how often it was called so far."""
    library = software_cuda.cublas()
    monkeypatch.setattr("optirs_web.native_backends.cuda.products.library", lambda: library)
    monkeypatch.setattr("optirs_web.native_backends.cuda.device.library", lambda: library)
    driver.set(devices=2)
    with opened() as device:
        yield device, library.software_cublas_calls
    ow.set_float32_matmul_precision("highest")


def walks(device, generator, dtype):
    """Operands of products: contiguous, transposed, of a batch, repeated along it, sliced, of one row or column."""

    def numbers(*shape):
        values = ow.tensor(generator.standard_normal(shape).astype(np.float32), device=device, dtype=dtype)
        return values, values.float().numpy()

    for (a, x), (b, y), is_by_cublas in (
        (numbers(5, 7), numbers(7, 3), 1),
        ((lambda pair: (pair[0].T, pair[1].T))(numbers(7, 5)), numbers(7, 3), 1),
        (numbers(5, 7), (lambda pair: (pair[0].T, pair[1].T))(numbers(3, 7)), 1),
        (numbers(4, 5, 7), numbers(4, 7, 3), 1),
        (numbers(2, 3, 5, 7), numbers(3, 7, 4), 2),  # a call for each index of the outer axis
        (numbers(40, 2, 3, 4), numbers(2, 4, 3), 0),  # too many of them
        (numbers(1, 9), numbers(9, 1), 1),
        (numbers(6, 1), numbers(1, 6), 1),
        ((lambda pair: (pair[0][1:, 2:9:2], pair[1][1:, 2:9:2]))(numbers(6, 10)), numbers(4, 3), 0),
        ((lambda pair: (pair[0][1:, 2:9], pair[1][1:, 2:9]))(numbers(6, 11)), numbers(7, 3), 1),  # from the 13th on
        (numbers(70, 33), numbers(33, 130), 1),
    ):
        yield a, x, b, y, is_by_cublas


@pytest.mark.parametrize("dtype", ["float32", *HALVES])
def test_products_are_those_of_numpy_by_cublas_where_it_has_a_word_for_them(with_cublas, dtype):
    device, calls = with_cublas
    for a, x, b, y, is_by_cublas in walks(device, np.random.default_rng(1), dtype):
        before = calls()
        result = a @ b
        assert result.dtype == dtype
        np.testing.assert_allclose(result.numpy(), x @ y, rtol=SPACING[dtype], atol=1e-5)
        assert calls() - before == is_by_cublas, (a.shape, b.shape)


def test_recorded_products_replay_and_are_not_fused_with_what_follows(with_cublas):
    device, calls = with_cublas
    x = ow.tensor(np.ones((200, 200), np.float32), device=device)
    step = ow.compile(lambda: ((x @ x) * 2.0 + 1.0).relu(), device=device)
    before = device.stats.dispatches
    step()
    assert device.stats.dispatches - before == 2  # the product, and all that follows as one
    for _ in range(3):
        assert step()[0, 0].item() == 401.0
    assert calls() >= 1


def test_factors_are_rounded_where_the_user_says_so_and_nowhere_else(with_cublas):
    device, _ = with_cublas
    for precision, expected in (("highest", 1 + 2**-12), ("high", 1.0), ("medium", 1.0), ("highest", 1 + 2**-12)):
        ow.set_float32_matmul_precision(precision)
        x = ow.tensor([[1 + 2**-12]], device=device)
        assert (x @ ow.ones((1, 1), device=device)).item() == expected
    ow.set_float32_matmul_precision("high")
    assert (ow.tensor([[1 + 2**-10]], device=device) @ ow.ones((1, 1), device=device)).item() == 1 + 2**-10
    ow.set_float32_matmul_precision("medium")
    assert (ow.tensor([[1 + 2**-10]], device=device) @ ow.ones((1, 1), device=device)).item() == 1.0
    with pytest.raises(ValueError, match="one of highest, high, medium"):
        ow.set_float32_matmul_precision("low")


@pytest.mark.parametrize("dtype", HALVES)
def test_products_under_autocast_are_by_cublas_and_so_are_their_gradients(with_cublas, dtype):
    device, calls = with_cublas
    x, w = (ow.Parameter(np.ones(shape, np.float32), device=device) for shape in ((5, 7), (7, 3)))
    before = calls()
    with ow.autocast(dtype):
        loss = (x @ w).sum()
    loss.backward()
    assert (loss.item(), x.grad.tolist(), w.grad.tolist()) == (105.0, [[3.0] * 7] * 5, [[5.0] * 3] * 7)
    assert calls() - before == 3


@pytest.mark.parametrize("dtype", HALVES)
def test_a_step_under_autocast_replays_its_products(with_cublas, dtype):
    device, calls = with_cublas
    x = ow.tensor(np.ones((8, 8), np.float32), device=device)

    def product():
        with ow.autocast(dtype):
            return x @ x

    step = ow.compile(product, device=device)
    before = calls()
    for _ in range(4):
        assert step().tolist() == [[8.0] * 8] * 8
    assert calls() > before


@pytest.mark.parametrize("dtype", HALVES)
def test_products_of_16_bit_factors_may_be_of_float32(with_cublas, dtype):
    device, calls = with_cublas
    row = ow.tensor([[2048.0, 1.0]], device=device, dtype=dtype)
    column, result = ow.ones((2, 1), device=device, dtype=dtype), ow.zeros((1, 1), device=device)
    before = calls()
    views = [tensor.strided.view for tensor in (row, column, result)]
    device.dispatch(cooperative("matmul"), views, (1, 1), (1, 1, 2, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0))
    assert result.item() == 2049.0  # which no type of 16 bits has
    assert calls() - before == 1


def test_a_sum_is_rounded_to_16_bits_once(with_cublas):
    device, _ = with_cublas
    row, ones = ow.tensor([[2048.0, 1.0, 1.0, 0.0]], device=device), ow.ones((4, 1), device=device)
    assert (row.half() @ ones.half()).item() == 2050.0  # 2048 + 1 is 2048 in float16


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_factors_of_16_bits_are_multiplied_exactly_whatever_is_set_for_float32(with_cublas, precision):
    device, calls = with_cublas
    ow.set_float32_matmul_precision(precision)
    x = ow.tensor([[1 + 2**-10]], device=device, dtype="float16")
    before = calls()
    assert (x @ ow.ones((1, 1), device=device, dtype="float16")).item() == 1 + 2**-10
    assert calls() - before == 1


@pytest.mark.parametrize("types", [("float16", "float32"), ("float32", "bfloat16"), ("float16", "bfloat16")])
def test_factors_of_different_types_are_multiplied_by_the_kernel(with_cublas, types):
    device, calls = with_cublas
    x, y = (ow.tensor(np.full((3, 3), 1.5), device=device, dtype=dtype) for dtype in types)
    before = calls()
    assert (x @ y).tolist() == [[6.75] * 3] * 3
    assert calls() == before


@pytest.mark.parametrize(("inner", "is_by_cublas"), [(2**31 - 1, True), (2**31, False)])
def test_sizes_that_are_no_c_int_are_left_to_the_kernel(driver, inner, is_by_cublas):
    from optirs_web.native_backends.cuda.products import products_of

    names = [name for name, _ in cooperative("matmul").parameters]
    values = dict(zip(names, (1, 1, inner, inner, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0), strict=True))
    assert (products_of(values, 1) is not None) == is_by_cublas


def test_a_library_that_refuses_to_start_leaves_nothing(driver, monkeypatch):
    library = software_cuda.cublas()
    monkeypatch.setattr("optirs_web.native_backends.cuda.products.library", lambda: library)
    driver.set(devices=2)
    before = amounts(driver), library.software_cublas_handles()
    library.software_cublas_set_status(1)
    with pytest.raises(DeviceNotAvailableError, match="refused to open: cuBLAS refused the product: not initialized"):
        ow.device("cuda:1")
    library.software_cublas_set_status(0)
    open_devices.avoided.clear()
    assert (amounts(driver), library.software_cublas_handles()) == before
