"""Elements by index: in brackets, by an array along one axis, or each by its own; and the reverse, sums by index."""

from __future__ import annotations

import math
import operator
from array import array
from typing import Any

from ..autograd import grad_enabled, record
from ..debugging import check_indices
from ..errors import ShapeError, UnsupportedError
from ..hostdata import HostData, host_data
from ..launch import Shape, apply, need_float32, need_one_device
from ..runtime.device import Device
from ..runtime.dtypes import INT32
from ..sparse import SparseRows
from ..tensor_class import Tensor, tensor
from .arithmetic import add
from .lookup import Lookup, along, elementwise, looked_up, spread
from .reduce import normalize_axes
from .shape import reshape
from .slices import parsed, part_of

__all__ = ["embedding", "flip", "gather", "getitem", "scatter_add", "take"]


def getitem(x: Tensor, index: Any) -> Tensor:
    """The elements at an index, as NumPy's `x[index]`. Gradient: g where they were taken, and zeros.

    Ints, slices, `...` and None give a strided view of the same memory. One axis may be indexed by int32 values of any
    shape, as a tensor, array or list: see `take`. A slice with a negative step is a copy, see `flip`.

    Raises:
        ShapeError: there is no such element or axis; also for values of an array or list, but not of a tensor.
        UnsupportedError: a mask (its result would have a shape that is not known before it is read: `where` keeps the
            shape), an index of floats, or arrays for more than one axis (`gather`).

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> x = ow.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device="cpu")
        >>> ops.getitem(x, (slice(None), slice(None, None, 2))).tolist(), ops.getitem(x, (1, [2, 0])).tolist()
        ([[1.0, 3.0], [4.0, 6.0]], [6.0, 4.0])
    """
    selection = parsed(index, x.shape)
    result = part_of(x, selection.parts)
    for axis in selection.backward:
        result = flip(result, axis)
    return result if selection.array is None else take(result, selection.array[1], selection.array[0])


def flip(x: Tensor, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """The elements in reverse order along axes (all by default), copied. Gradient: g, flipped.

    Raises:
        ShapeError: there is no such axis, or it is named twice.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> ops.flip(ow.tensor([1.0, 2.0, 3.0], device="cpu")).tolist()
        [3.0, 2.0, 1.0]
    """
    for number in normalize_axes(axis, x.ndim):
        x = _flipped(x, number)
    return x


def _flipped(x: Tensor, axis: int) -> Tensor:
    size = x.shape[axis]
    if size < 2:
        return x
    order = apply("indexing", "reversed", 0, size - 1, dtype=INT32, device=x.device, shape=(size,))
    return record(
        looked_up(x, along(order, x.shape, axis, wraps=False), x.shape, 0), (x, lambda g, _: _flipped(g, axis))
    )


def _index(index: Any, length: int, operation: str, device: Device, *, wraps: bool = True) -> Tensor:
    """Return an index as an int32 tensor; values on the host are checked, in a block of `debug` those of tensors too.

    Raises:
        ShapeError: a value on the host is out of range, or the index is on another device.
        UnsupportedError: of bools or floats.
    """
    if isinstance(index, Tensor):
        type_ = str(index.dtype)
    else:
        raw = host_data(index, None if isinstance(index, (list, tuple)) or not hasattr(index, "dtype") else INT32)
        type_ = str(getattr(index, "dtype", raw.dtype if raw.content.nbytes else "int32")).rpartition(".")[2]
    if "bool" in type_:
        raise UnsupportedError(
            f"{operation} by a mask would have a shape unknown until the mask is read; `where` "
            "keeps the shape, or make indices of it on the host"
        )
    if "float" in type_ or (isinstance(index, Tensor) and index.dtype is not INT32):
        raise UnsupportedError(f"{operation} needs int32 indices, not {type_}")
    if not isinstance(index, Tensor):
        return tensor(_on_host(raw, length), device=device)
    if index.device is not device:
        raise ShapeError(
            f"{operation} got a tensor on {device.name} and indices on {index.device.name}; tensor(x, device=...) "
            "copies, and compile(step, device=...) places a step's arrays"
        )
    check_indices(operation, index, length, wraps=wraps)
    return index


def _on_host(raw: HostData, length: int) -> HostData:
    if not raw.content.nbytes:
        return HostData(raw.content, raw.shape, INT32)
    values = raw.content.cast("B").cast("i")
    for value in (min(values), max(values)):
        if not -length <= value < length:
            raise ShapeError(f"index {value} is out of range for an axis of {length}")
    from_start = array("i", (value % length for value in values))
    return HostData(memoryview(from_start).cast("B"), raw.shape, INT32)


def take(x: Tensor, index: Any, axis: int = 0) -> Tensor:
    """The elements at indices along an axis, as `numpy.take`: the axes of `index` replace that axis.

    Gradient: g added up where it was taken from, in a fixed order, so that it is the same at every run.

    Args:
        x: of any dtype.
        index: int32 of any shape; a tensor or what `tensor` takes. Negative ones count from the end. The values of a
            tensor are checked in a block of `optirs_web.debug` only: an index out of range gives NaN (0 for
            integers), and has no gradient.
        axis: along which.

    Raises:
        ShapeError: there is no such axis; a number on the host is out of range.
        UnsupportedError: the index is no int32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> ops.take(ow.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu"), [1, 1, -2]).tolist()
        [[3.0, 4.0], [3.0, 4.0], [1.0, 2.0]]
    """
    (axis,) = normalize_axes(axis, x.ndim)
    indices = _index(index, x.shape[axis], "take", x.device)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return _lookup(x, along(indices, x.shape, axis, wraps=True), shape)


def gather(x: Tensor, index: Any, axis: int = -1) -> Tensor:
    """For each element of `index` the element of x at that index along an axis, as `numpy.take_along_axis`.

    The same as `torch.gather`.

    Gradient: g added up where it was taken from, in a fixed order.

    Args:
        x: of any dtype.
        index: int32 of the shape of x, but along the axis of any length. See `take` for its values.
        axis: along which.

    Raises:
        ShapeError: the shapes do not fit; there is no such axis; a number on the host is out of range.
        UnsupportedError: the index is no int32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> ops.gather(ow.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu"), [[1], [0]]).tolist()
        [[2.0], [3.0]]
    """
    (axis,) = normalize_axes(axis, x.ndim)
    indices = _index(index, x.shape[axis], "gather", x.device)
    _need_fitting("gather", x, indices, axis)
    return _lookup(x, elementwise(indices, x.shape, axis), indices.shape)


def _need_fitting(operation: str, x: Tensor, index: Tensor, axis: int) -> None:
    others = [number for number in range(x.ndim) if number != axis]
    if index.ndim != x.ndim or any(index.shape[number] != x.shape[number] for number in others):
        raise ShapeError(
            f"{operation} along axis {axis} needs indices of the shape {x.shape}, of any length there, "
            f"not {index.shape}"
        )


def scatter_add(x: Tensor, index: Any, source: Tensor, axis: int = -1) -> Tensor:
    """x, with each element of `source` added at its index along an axis: torch's `scatter_add`, not in place.

    Elements with one index are added in a fixed order, so that the sum is the same at every run. Gradients: g, and g
    gathered by the index.

    Args:
        x: float32.
        index: int32 of the shape of x, but along the axis of any length. See `take` for its values; a source element
            whose index is out of range is left out.
        source: float32 of the shape of the index.
        axis: along which.

    Raises:
        ShapeError: the shapes do not fit; there is no such axis; a number on the host is out of range.
        UnsupportedError: the index is no int32, or a tensor no float32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> ops.scatter_add(ow.zeros((3,), device="cpu"), [2, 0, 2], ow.ones((3,), device="cpu")).tolist()
        [1.0, 0.0, 2.0]
    """
    need_float32("scatter_add", x, source)
    need_one_device("scatter_add", x, source)
    (axis,) = normalize_axes(axis, x.ndim)
    indices = _index(index, x.shape[axis], "scatter_add", x.device)
    _need_fitting("scatter_add", x, indices, axis)
    if source.shape != indices.shape:
        raise ShapeError(f"scatter_add needs as many indices as elements: {indices.shape} and {source.shape}")
    return add(x, spread(source, elementwise(indices, x.shape, axis), x.shape))


def embedding(weight: Tensor, index: Any, padding_idx: int | None = None, sparse: bool = False) -> Tensor:
    """Rows of a table, as torch.nn.functional.embedding. Gradient: g added up by row, in a fixed order.

    Args:
        weight: (rows, ...), float32.
        index: int32 of any shape; a tensor or what `tensor` takes. A negative one in a tensor does not count from the
            end: it is no row, and gives NaN, as one that is too large does.
        padding_idx: a row that gets no gradient. Its values are looked up as those of any row.
        sparse: the gradient is `SparseRows` of the rows in `index`, which optimizers like SparseAdam take; but a
            tensor where gradients of the gradient are recorded. For a table that was not computed from others.

    Raises:
        ShapeError: the table has no rows; there is no such padding row; a number on the host is no row.
        UnsupportedError: the index is no int32, the table no float32; `sparse` for a table that was computed.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> table = ow.Parameter([[1.0, 2.0], [3.0, 4.0]], device="cpu")
        >>> ops.embedding(table, [[1, 0], [1, 1]], padding_idx=0).sum().backward()
        >>> table.grad.tolist()
        [[0.0, 0.0], [3.0, 3.0]]
    """
    need_float32("embedding", weight)
    if not weight.ndim:
        raise ShapeError("embedding needs a table with rows, and got a tensor without axes")
    if sparse and weight._edges is not None:
        raise UnsupportedError("sparse=True needs a table that was not computed from others, such as a Parameter")
    indices = _index(index, weight.shape[0], "embedding", weight.device, wraps=False)
    lookup = along(indices, weight.shape, 0, wraps=False)
    shape = (*indices.shape, *weight.shape[1:])
    if padding_idx is None:
        return _lookup(weight, lookup, shape, is_sparse=sparse)
    padding = operator.index(padding_idx)
    if not -weight.shape[0] <= padding < weight.shape[0]:
        raise ShapeError(f"padding_idx {padding_idx} is not a row of a table that has {weight.shape[0]}")
    return _lookup(weight, lookup, shape, padding % weight.shape[0], is_sparse=sparse)


def _lookup(x: Tensor, lookup: Lookup, shape: Shape, padding: int | None = None, *, is_sparse: bool = False) -> Tensor:
    """Return the elements at the indices, NaN where one is out of range; row `padding` gets no gradient."""

    def rule(g: Tensor, _: Tensor) -> Any:
        settled = lookup.settled()
        if padding is not None:
            settled = settled._replace(indices=apply("indexing", "without", settled.indices, padding, dtype=INT32))
        if is_sparse and not grad_enabled():
            return SparseRows(reshape(settled.indices, (-1,)), reshape(g, (settled.entries, *x_shape[1:])), x_shape)
        return spread(g, settled, x_shape)

    x_shape = x.shape
    missing = math.nan if x.dtype.wgsl == "f32" else 0
    return record(looked_up(x, lookup, shape, missing), (x, rule))
