"""Matrix products by NVIDIA's cuBLAS, in the place of the kernel `matmul`, where its package is installed.

They are of float32, or of two factors of float16 or of bfloat16; sums are of float32 in each.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from ...errors import OptirsError
from ...runtime import nvrtc
from ...runtime.kernels import CooperativeKernel, Kernel
from ...runtime.matmul_precision import float32_matmul_precision
from ...runtime.packed_kernels import PackedKernel
from ...runtime.products import products_of_grid
from . import driver

__all__ = ["REPLACED", "Product", "Products", "library", "products_of", "replaces"]

REPLACED = frozenset(("matmul",))
"""The kernels that this takes the place of."""

_PLAIN, _TRANSPOSED = 0, 1  # CUBLAS_OP_N, CUBLAS_OP_T
_FLOAT32, _FLOAT16, _BFLOAT16 = 0, 2, 14  # CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF
_TYPES = {"": _FLOAT32, "f16": _FLOAT16, "float16": _FLOAT16, "bfloat16": _BFLOAT16}
_BYTES = {_FLOAT32: 4, _FLOAT16: 2, _BFLOAT16: 2}
_ANY = -1  # CUBLAS_GEMM_DEFAULT
_COMPUTE = {"highest": 68, "high": 77, "medium": 75}  # CUBLAS_COMPUTE_32F, _32F_FAST_TF32, _32F_FAST_16BF
# CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: otherwise partial sums of a 16-bit result may have 16 bits too.
_SUMS_IN_FLOAT32 = 16
_LARGEST = (1 << 31) - 1  # a C int, as which sizes and strides are passed

_STATUS = {
    1: "not initialized",
    3: "out of memory",
    7: "invalid value",
    8: "not for this GPU",
    13: "it did not run",
    15: "not supported",
}
_OUT_OF_MEMORY = 3

# What NVIDIA recommends. Without it cuBLAS would take more for each graph that it is recorded in.
_WORKSPACE, _WORKSPACE_FROM_HOPPER, _HOPPER = 4 << 20, 32 << 20, 90

_MOST_CALLS = 16
"""For one launch. A batch over two axes is a call for each index of the outer one; beyond that the kernel is used."""


class Product(NamedTuple):
    """Products of row-major matrices of the same sizes, at regular distances, as cuBLAS is asked for them.

    Its matrices are column-major, so C = A B is passed as Cᵀ = Bᵀ Aᵀ.

    Attributes:
        sizes: columns of C, rows of C, and the length of the sums.
        a: how A is read, plain or transposed (cublasOperation_t), and elements from one of its columns to the next.
        b: likewise of B.
        starts: the first element of A, B and C.
        distances: elements from one A, B and C to the next.
        batch: how many products.
    """

    sizes: tuple[int, int, int]
    a: tuple[int, int]
    b: tuple[int, int]
    starts: tuple[int, int, int]
    distances: tuple[int, int, int]
    batch: int


@cache
def library() -> Any:
    """The cuBLAS of the compiler's CUDA: what is loaded, the system's, or that of NVIDIA's package; else None."""
    major = nvrtc.version()[0]
    name = f"cublas64_{major}.dll" if sys.platform == "win32" else f"libcublas.so.{major}"
    package = find_spec("nvidia")
    inside = os.path.join(f"cu{major}", *(("bin", "x86_64") if sys.platform == "win32" else ("lib",)))
    folders = [
        os.path.join(location, inside) for location in (package.submodule_search_locations or () if package else ())
    ]
    for path in (name, *(os.path.join(folder, name) for folder in folders)):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


class Products:
    """cuBLAS on one stream."""

    def __init__(self, cublas: Any, capability: int, stream: driver.Handle) -> None:
        """The device is current."""
        self._cublas = cublas
        self._handle = ctypes.c_void_p()
        self._stream = stream
        size = _WORKSPACE_FROM_HOPPER if capability >= _HOPPER else _WORKSPACE
        self._workspace = driver.allocate_now(size)
        try:
            self._check(cublas.cublasCreate_v2(ctypes.byref(self._handle)))
            self._check(cublas.cublasSetStream_v2(self._handle, ctypes.c_void_p(int(stream))))  # resets the workspace
            self._check(cublas.cublasSetMathMode(self._handle, _SUMS_IN_FLOAT32))
            workspace = ctypes.c_void_p(self._workspace)
            self._check(cublas.cublasSetWorkspace_v2(self._handle, workspace, ctypes.c_size_t(size)))
        except (driver.CudaError, OptirsError):
            self.close()
            raise
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    @classmethod
    def open(cls, capability: int, stream: driver.Handle) -> Products | None:
        """Return an object that runs cuBLAS products on the current device in stream order; None without cuBLAS."""
        cublas = library()
        return None if cublas is None else cls(cublas, capability, stream)

    def close(self) -> None:
        """Destroy the cuBLAS handle and free the workspace. All work that was enqueued has to have run."""
        if self._handle.value is not None:  # it was made
            self._cublas.cublasDestroy_v2(self._handle)
        driver.free_now(self._workspace)

    def call(
        self, kernel: Kernel, addresses: tuple[int, ...], parameters: bytes, grid: tuple[int, int, int]
    ) -> Callable[[], None] | None:
        """Return a call that does a launch of `matmul` by cuBLAS, or None where cuBLAS cannot.

        The precision that was set is that of float32 factors. Factors of 16 bits are multiplied exactly.
        """
        values = dict(zip((name for name, _ in kernel.parameters), map(int, kernel.unpack(parameters)), strict=True))
        base = _base_of(kernel)
        assert isinstance(base, CooperativeKernel)
        products = products_of(values, products_of_grid(base, values["rows"], values["columns"], grid))
        if products is None:
            return None
        types = _types_of(kernel)
        compute = _COMPUTE[float32_matmul_precision() if types[0] == _FLOAT32 else "highest"]
        calls = [
            partial(self._cublas.cublasGemmStridedBatchedEx, *self._arguments(product, addresses, types, compute))
            for product in products
        ]

        def run() -> None:
            for call in calls:
                self._check(call())

        return run

    def _arguments(
        self, product: Product, addresses: tuple[int, ...], types: tuple[int, ...], compute: int
    ) -> Iterator[Any]:
        columns, rows, inner = product.sizes
        a, b, c = (
            ctypes.c_void_p(address + _BYTES[type_] * start)
            for address, type_, start in zip(addresses, types, product.starts, strict=True)
        )
        of_a, of_b, of_c = map(ctypes.c_longlong, product.distances)
        type_a, type_b, type_c = types
        yield from (self._handle, product.b[0], product.a[0], columns, rows, inner, ctypes.byref(self._one))
        yield from (b, type_b, product.b[1], of_b, a, type_a, product.a[1], of_a)
        yield from (ctypes.byref(self._zero), c, type_c, columns, of_c, product.batch, compute, _ANY)

    def _check(self, status: int) -> None:
        if status == _OUT_OF_MEMORY:
            raise driver.CudaError(driver.OUT_OF_MEMORY, "cuBLAS is out of memory")
        if status:
            raise OptirsError(f"cuBLAS refused the product: {_STATUS.get(status, 'its error')} ({status})")


def products_of(values: Mapping[str, int], count: int) -> list[Product] | None:
    """The products of a launch of `matmul`, from its parameters and their number; None where cuBLAS has no word for it.

    Example:
        >>> names = "rows columns inner a_row_stride a_inner_stride b_inner_stride b_column_stride a_start b_start"
        >>> sizes = dict(zip(names.split(), (2, 3, 4, 4, 1, 1, 4, 0, 8)))
        >>> batch = dict(first_product=0, batch_inner=5, a_outer_stride=0, a_batch_stride=8, b_outer_stride=0,
        ...              b_batch_stride=0)
        >>> [(one.a, one.b, one.batch) for one in products_of(sizes | batch, 5)]
        [((0, 4), (1, 4), 5)]
    """
    rows, columns, inner = values["rows"], values["columns"], values["inner"]
    a = _layout(inner, rows, values["a_inner_stride"], values["a_row_stride"])
    b = _layout(columns, inner, values["b_column_stride"], values["b_inner_stride"])
    if a is None or b is None or max(rows, columns, inner, a[1], b[1]) > _LARGEST:
        return None
    within, first = values["batch_inner"], values["first_product"]
    runs = list(_runs(first, count, within, _is_single_run(values)))
    if len(runs) > _MOST_CALLS:
        return None
    products = []
    for start, length in runs:
        outer, index = divmod(start, within)
        starts = [
            values[f"{name}_start"] + outer * values[f"{name}_outer_stride"] + index * values[f"{name}_batch_stride"]
            for name in "ab"
        ]
        step = "batch" if within > 1 else "outer"
        distances = (values[f"a_{step}_stride"], values[f"b_{step}_stride"], rows * columns)
        c = start * rows * columns
        products.append(Product((columns, rows, inner), a, b, (starts[0], starts[1], c), distances, length))
    return products


def _is_single_run(values: Mapping[str, int]) -> bool:
    """Return whether the distance from a matrix to the next is the same over both axes of the batch."""
    within = values["batch_inner"]
    return within == 1 or all(
        values[f"{name}_outer_stride"] == within * values[f"{name}_batch_stride"] for name in "ab"
    )


def _runs(first: int, count: int, within: int, is_single: bool) -> Iterator[tuple[int, int]]:
    """Yield the number of the first product and the count of products of each run at equal distances."""
    end = first + count
    while first < end:
        length = end - first if is_single else min(end - first, within - first % within)
        yield first, length
        first += length


def _layout(leading: int, other: int, leading_stride: int, other_stride: int) -> tuple[int, int] | None:
    """Return the transposition with which cuBLAS reads a matrix, and the distance of its columns; None if it cannot."""
    if (leading_stride == 1 or leading == 1) and (other_stride >= leading or other == 1):
        return _PLAIN, max(other_stride, leading)
    if (other_stride == 1 or other == 1) and (leading_stride >= other or leading == 1):
        return _TRANSPOSED, max(leading_stride, other)
    return None


def replaces(kernel: Kernel) -> bool:
    """Return whether cuBLAS replaces a kernel: factors are of one type, and the result is of that or float32."""
    base = _base_of(kernel)
    if not isinstance(base, CooperativeKernel) or base.name not in REPLACED:
        return False
    a, b, c = _types_of(kernel)
    return a == b and c in (a, _FLOAT32)


def _base_of(kernel: Kernel) -> Kernel:
    """The kernel over float32."""
    return kernel.base if isinstance(kernel, PackedKernel) else kernel


def _types_of(kernel: Kernel) -> tuple[int, ...]:
    """The cudaDataType_t of A, B and C."""
    kinds = kernel.kinds if isinstance(kernel, PackedKernel) else ("", "", "")
    return tuple(_TYPES[kind] for kind in kinds)
