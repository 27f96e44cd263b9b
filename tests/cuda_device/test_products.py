"""Products by cuBLAS, which is in software here too."""

import numpy as np
import pytest
import software_cuda
from software_cuda import amounts, opened

import optirs_web as ow
from optirs_web.errors import DeviceNotAvailableError
from optirs_web.runtime import registry


@pytest.fixture
def with_cublas(driver, monkeypatch):
    """A device that finds it, and how often it was called so far."""
    library = software_cuda.cublas()
    monkeypatch.setattr("optirs_web.native_backends.cuda_products.library", lambda: library)
    monkeypatch.setattr("optirs_web.native_backends.cuda_device.library", lambda: library)
    driver.set(devices=2)
    with opened() as device:
        yield device, library.software_cublas_calls
    ow.set_float32_matmul_precision("highest")


def walks(device, generator):
    """Operands of products: as they lie, transposed, of a batch, repeated along it, sliced, of one row or column."""

    def numbers(*shape):
        values = generator.standard_normal(shape).astype(np.float32)
        return ow.tensor(values, device=device), values

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
        ((lambda pair: (pair[0][1:, 2:9], pair[1][1:, 2:9]))(numbers(6, 10)), numbers(7, 3), 1),
        (numbers(70, 33), numbers(33, 130), 1),
    ):
        yield a, x, b, y, is_by_cublas


def test_products_are_those_of_numpy_by_cublas_where_it_has_a_word_for_them(with_cublas):
    device, calls = with_cublas
    for a, x, b, y, is_by_cublas in walks(device, np.random.default_rng(1)):
        before = calls()
        np.testing.assert_allclose((a @ b).numpy(), x @ y, rtol=1e-5, atol=1e-5)
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


@pytest.mark.xfail(reason="products of 16-bit factors have a kernel of their own, which cuBLAS does not replace")
def test_products_under_autocast_are_by_cublas(with_cublas):
    device, calls = with_cublas
    x = ow.tensor(np.ones((8, 8), np.float32), device=device)
    before = calls()
    with ow.autocast("float16"):
        assert (x @ x).tolist() == [[8.0] * 8] * 8
    assert calls() - before == 1


def test_a_library_that_refuses_to_start_leaves_nothing(driver, monkeypatch):
    library = software_cuda.cublas()
    monkeypatch.setattr("optirs_web.native_backends.cuda_products.library", lambda: library)
    driver.set(devices=2)
    before = amounts(driver), library.software_cublas_handles()
    library.software_cublas_set_status(1)
    with pytest.raises(DeviceNotAvailableError, match="refused to open: cuBLAS refused the product: not initialized"):
        ow.device("cuda:1")
    library.software_cublas_set_status(0)
    registry.avoided.clear()
    assert (amounts(driver), library.software_cublas_handles()) == before
