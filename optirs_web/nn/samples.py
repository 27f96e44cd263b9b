"""Rows of a data set, picked on the host by their numbers: of arrays, or of anything that can be indexed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ShapeError, UnsupportedError
from ..hostdata import HostData, host_data
from ..tensors import Tensor

__all__ = ["Batch", "TensorDataset", "picker"]

Batch = Any
"""`HostData`, or a tuple or dict of such."""

Picker = Callable[[Sequence[int]], Batch]


class TensorDataset:
    """Arrays of one length, whose rows of one number belong together.

    Args:
        arrays: NumPy arrays, anything with the buffer protocol, or nested lists.

    Raises:
        ShapeError: their lengths differ.

    Example:
        >>> import optirs_web as ow
        >>> data = ow.nn.TensorDataset([[1.0], [2.0], [3.0]], [0, 1, 0])
        >>> len(data), [[one.tolist() for one in batch] for batch in ow.nn.DataLoader(data, 2, device="cpu")]
        (3, [[[[1.0], [2.0]], [0, 1]], [[[3.0]], [0]]])
    """

    def __init__(self, *arrays: Any) -> None:
        self.arrays = arrays
        self._columns = [_column(one) for one in arrays]
        self._length = _one_length([length for length, _ in self._columns])

    def __len__(self) -> int:
        return self._length

    def pick(self, numbers: Sequence[int]) -> tuple[HostData, ...]:
        """The rows of these numbers."""
        return tuple(rows(numbers) for _, rows in self._columns)


def _one_length(lengths: Sequence[int]) -> int:
    if len(set(lengths)) != 1:
        raise ShapeError(f"the arrays of a data set must have one length, not {', '.join(map(str, lengths)) or 'none'}")
    return lengths[0]


def picker(dataset: Any, collate_fn: Callable[[list[Any]], Any] | None) -> tuple[int, Picker]:
    """How many samples there are, and what gives those of some numbers as one batch on the host."""
    if isinstance(dataset, TensorDataset) and collate_fn is None:
        return len(dataset), dataset.pick
    if collate_fn is None:
        if isinstance(dataset, Mapping):
            columns = TensorDataset(*dataset.values())
            return len(columns), lambda numbers: dict(zip(dataset, columns.pick(numbers), strict=True))
        if isinstance(dataset, (tuple, list)) and dataset and all(map(_is_array, dataset)):
            columns = TensorDataset(*dataset)
            return len(columns), columns.pick
        if _is_array(dataset):
            return _column(dataset)
    try:
        count = len(dataset)
    except TypeError:
        raise UnsupportedError(
            f"a data set has a length and can be indexed; {type(dataset).__name__} has no len()"
        ) from None
    join = collate_fn or _joined
    return count, lambda numbers: _on_host(join([dataset[number] for number in numbers]))


def _is_array(value: Any) -> bool:
    if isinstance(value, Tensor):
        raise UnsupportedError(
            "a data set must be on the host; its batches are uploaded; index a tensor that is on a device yourself"
        )
    if hasattr(value, "__array__"):
        return bool(getattr(value, "shape", ()))
    try:
        return memoryview(value).ndim > 0 and not isinstance(value, (bytes, str))
    except TypeError:
        return False


def _column(data: Any) -> tuple[int, Callable[[Sequence[int]], HostData]]:
    """The length of an array, and what gives its rows: an array of NumPy's stays as it is, mapped to a file or not."""
    if hasattr(data, "__array__"):
        import numpy as np

        values = np.asarray(data)
        return _length(values.shape), lambda numbers: host_data(values[_index(numbers)])
    content, shape, dtype = host_data(data)
    length = _length(shape)
    stride = content.nbytes // max(length, 1)

    def rows(numbers: Sequence[int]) -> HostData:
        joined = b"".join(content[stride * one : stride * (one + 1)] for one in numbers)
        return HostData(memoryview(joined), (len(numbers), *shape[1:]), dtype)

    return length, rows


def _index(numbers: Sequence[int]) -> slice | list[int]:
    """Numbers that follow one another are not copied by NumPy."""
    return slice(numbers.start, numbers.stop) if isinstance(numbers, range) else list(numbers)


def _length(shape: tuple[int, ...]) -> int:
    if not shape:
        raise ShapeError("an array of a data set needs an axis of samples")
    return shape[0]


def _joined(samples: list[Any]) -> Any:
    """Samples as a batch: numbers and arrays one above the other, tuples and dicts part by part."""
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: _joined([one[key] for one in samples]) for key in first}
    if isinstance(first, tuple):
        return tuple(_joined(list(parts)) for parts in zip(*samples, strict=True))
    parts = [host_data(one) for one in samples]
    _, shape, dtype = parts[0]
    if any(one.shape != shape or one.dtype is not dtype for one in parts):
        raise ShapeError(f"the samples of a batch must have one shape and type, not {shape} {dtype} and others")
    return HostData(memoryview(b"".join(one.content for one in parts)), (len(parts), *shape), dtype)


def _on_host(batch: Any) -> Batch:
    if isinstance(batch, HostData):
        return batch
    if isinstance(batch, Mapping):
        return {key: _on_host(one) for key, one in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_on_host(one) for one in batch)
    return host_data(batch)
