"""Gradients of some rows of a parameter, and the sum of entries of the same row on the device."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .errors import ShapeError, UnsupportedError
from .hostdata import host_data
from .launch import filled
from .runtime.buffer import View
from .runtime.device import Device
from .runtime.dtypes import FLOAT32, INT32, UINT32
from .runtime.kernels import cooperative
from .tensor_class import Tensor, as_shape, empty, tensor

__all__ = ["ROW_THREADS", "Coalesced", "SparseRows"]

ROW_THREADS = 256
"""Invocations of a workgroup of a kernel over entries and columns."""

_SORTED_AT_ONCE = 2048  # MOST in sort_rows.wgsl
_SUMMED_AT_ONCE = 64  # CHUNK in sum_rows.wgsl


class SparseRows:
    """The gradient of some rows of a parameter, such as an embedding.

    `optim.SparseAdam` takes no others; `SGD` and `Adagrad` take them too. A step reads and writes only these rows: its
    cost grows with the entries, not with the parameter.

    Entries of one row are summed on the device. They are sorted by row and then by position, and added in that order:
    64 at a time, then the sums of these. So the result is the same at every run, and on every device up to rounding.
    n entries take 2 dispatches up to 64, 3 up to 2,048, then 4, and a step over them two more, for any rows, so that a
    step recorded for some rows can be replayed for others. The sort makes about n (66 + 11 n / 2048) comparisons, which
    is suitable for n up to some hundred thousand; the sums read each value once. Nothing is read back.

    Args:
        indices: the row of each entry, int32 of the shape (n,); a row may occur several times. -1 is no row, so that a
            recorded step can be replayed with fewer entries. The values of a tensor are not checked: other numbers that
            are no row of the parameter are ignored too.
        values: float32 of the shape (n, *shape[1:]); of any shape if there are no entries.
        shape: of the parameter.
        device: for arrays; by default that of a tensor among the arguments.

    Attributes:
        indices: the rows, as a tensor.
        values: the entries, as a tensor.
        shape: of the parameter.

    Raises:
        ShapeError: the shapes do not fit each other, or an array has a row that is out of range.
        UnsupportedError: a tensor is of another dtype, or there are 2**32 values or more.

    Example:
        >>> import optirs_web as ow
        >>> table = ow.Parameter([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]], device="cpu")
        >>> grad = ow.SparseRows([2, 0, 2], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], table.shape, device="cpu")
        >>> ow.optim.SGD([table], lr=0.5).step(grads=[grad])
        >>> table.tolist()
        [[-0.5, -1.0], [1.0, 1.0], [-2.0, -3.0]]
    """

    def __init__(self, indices: Any, values: Any, shape: Any, device: str | Device | None = None) -> None:
        self.shape = as_shape(shape)
        if not self.shape:
            raise ShapeError("a tensor without axes has no rows")
        source = next((value for value in (values, indices) if isinstance(value, Tensor)), None)
        if device is None and source is not None:
            device = source.device
        self.indices = _indices(indices, self.shape[0], device)
        self.values = _values(values, self.indices.device)
        if not self.indices.size and not self.values.size:
            self.values = Tensor(self.values.view, (0, *self.shape[1:]), FLOAT32)
        if self.indices.ndim != 1:
            raise ShapeError(f"the rows of entries have the shape (n,), not {self.indices.shape}")
        if self.values.shape != (*self.indices.shape, *self.shape[1:]):
            raise ShapeError(
                f"{self.indices.size} entries of a parameter of shape {self.shape} have the shape "
                f"{(*self.indices.shape, *self.shape[1:])}, not {self.values.shape}"
            )
        if self.values.size >= 1 << 32:
            raise UnsupportedError(f"{self.values.size:,} values of rows; at most 4,294,967,295 are possible")

    @property
    def dtype(self) -> Any:
        """The type of the values, float32."""
        return FLOAT32

    @property
    def device(self) -> Device:
        """The device of indices and values."""
        return self.values.device

    @property
    def view(self) -> tuple[View, View]:
        """The views of the indices and the values, which recordings compare."""
        return self.indices.view, self.values.view

    @property
    def length(self) -> int:
        """Number of elements of a row."""
        return math.prod(self.shape[1:])

    def __repr__(self) -> str:
        return f"<SparseRows {self.indices.size} of {self.shape} on {self.device.name}>"

    def to(self, device: Device) -> SparseRows:
        """Return this gradient, or a copy if it is on another device."""
        if device is self.device:
            return self
        return SparseRows(tensor(self.indices, device=device), tensor(self.values, device=device), self.shape)

    def to_dense(self) -> Tensor:
        """Return the gradient with all rows, zero where there is no entry.

        Example:
            >>> import optirs_web as ow
            >>> ow.SparseRows([1, 1, -1], [1.0, 2.0, 4.0], (3,), device="cpu").to_dense().tolist()
            [0.0, 3.0, 0.0]
        """
        dense = filled(self.shape, 0.0, self.device)
        if self.values.size:
            coalesced = self.coalesced()
            for view, first in coalesced.binding_ranges(dense.view):
                coalesced.dispatch("spread_rows", view, first)
        return dense

    def unscale(self, scaler: View) -> None:
        """Divide the values by the scale of the loss, in place, for `GradScaler.unscale_`."""
        if self.values.size:
            views = [self.indices.view, self.values.view, scaler]
            workgroups = -(-self.values.size // ROW_THREADS)
            parameters = (self.values.size, self.shape[0], self.length)
            self.device.dispatch(cooperative("unscale_rows"), views, workgroups, parameters)

    def coalesced(self) -> Coalesced:
        """Return the sums of the entries of each row, on the device. There has to be at least one value."""
        return _coalesced(self)


class Coalesced(NamedTuple):
    """The entries sorted by row, with the sum of each row where its entries begin.

    Attributes:
        rows: uint32 of the shape (n,), ascending; those that are no row of the parameter come last.
        sums: n rows of values; those at the first entry of a row are valid.
        row_count: of the parameter.
        length: elements of a row.
    """

    rows: Tensor
    sums: Tensor
    row_count: int
    length: int

    @property
    def parameters(self) -> tuple[int, int, int]:
        """The first parameters of kernels over the entries."""
        return self.rows.size, self.row_count, self.length

    @property
    def workgroups(self) -> int:
        """The workgroups of a kernel with an invocation for each value."""
        return -(-self.rows.size * self.length // ROW_THREADS)

    def binding_ranges(self, whole: View) -> list[tuple[View, int]]:
        """Return binding ranges of a view of the parameter's size, and the index of the first element of each."""
        limits = whole.buffer.device.capabilities
        limit = limits.max_binding_bytes // limits.offset_alignment * limits.offset_alignment // 4
        size = whole.nbytes // 4
        firsts = range(0, size, limit)
        return [(whole.part(4 * first, 4 * min(limit, size - first)), first) for first in firsts]

    def dispatch(self, kernel: str, target: View, *more: int) -> None:
        """Run a cooperative kernel over the sums."""
        views = [self.rows.view, self.sums.view, target]
        self.sums.device.dispatch(cooperative(kernel), views, self.workgroups, (*self.parameters, *more))


def _indices(indices: Any, rows: int, device: str | Device | None) -> Tensor:
    if isinstance(indices, Tensor):
        if indices.dtype is not INT32:
            raise UnsupportedError(f"the rows of entries are int32, not {indices.dtype}")
        return indices
    raw = host_data(indices, INT32)
    type_ = str(getattr(indices, "dtype", getattr(indices, "format", "")))
    if raw.content.nbytes and ("float" in type_ or type_ in ("f", "d", "e")):
        raise UnsupportedError(f"the rows of entries are int32, not {type_}")
    numbers = raw.content.cast("B").cast("i") if raw.content.nbytes else ()
    for number in (min(numbers, default=0), max(numbers, default=0)):
        if not -1 <= number < max(rows, 1):
            raise ShapeError(f"an entry names row {number} of a parameter that has {rows}; -1 is no row")
    return tensor(raw, device=device)


def _values(values: Any, device: Device) -> Tensor:
    if not isinstance(values, Tensor):
        return tensor(values, device=device, dtype=FLOAT32)
    if values.dtype is not FLOAT32:
        raise UnsupportedError(f"the values of rows are float32, not {values.dtype}")
    if values.device is not device:
        raise ShapeError(f"the rows of entries lie on {device.name}, their values on {values.device.name}")
    return values


def _sorted(indices: Tensor, row_count: int) -> tuple[Tensor, Tensor]:
    """Return the rows, ascending, and the position of each among the indices."""
    count, device = indices.size, indices.device
    block = min(_SORTED_AT_ONCE, 1 << (count - 1).bit_length())
    rows, order = (empty((count,), UINT32, device) for _ in range(2))
    device.dispatch(
        cooperative("sort_rows"), [indices.view, rows.view, order.view], -(-count // block), (count, row_count, block)
    )
    if count <= block:
        return rows, order
    merged_rows, merged_order = (empty((count,), UINT32, device) for _ in range(2))
    views = [buffer.view for buffer in (rows, order, merged_rows, merged_order)]
    device.dispatch(cooperative("merge_rows"), views, -(-count // ROW_THREADS), (count, block))
    return merged_rows, merged_order


def _coalesced(grad: SparseRows) -> Coalesced:
    rows, order = _sorted(grad.indices, grad.shape[0])
    sums = empty(grad.values.shape, FLOAT32, grad.device)
    coalesced = Coalesced(rows, sums, grad.shape[0], grad.length)
    chunks = -(-rows.size // _SUMMED_AT_ONCE)
    workgroups = -(-chunks * grad.length // ROW_THREADS)
    views = [operand.view for operand in (grad.values, rows, order, sums)]
    grad.device.dispatch(cooperative("sum_rows"), views, workgroups, coalesced.parameters)
    if chunks > 1:
        grad.device.dispatch(cooperative("join_rows"), [rows.view, sums.view], workgroups, coalesced.parameters)
    return coalesced
