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
    """Arrays of one length; row `i` of all of them is sample `i`.

    Args:
        arrays: NumPy arrays, anything with the buffer protocol, or nested lists.

    Raises:
        ShapeError: their lengths differ.

    Example:
        >>> import optirs_web as ow
        >>> data = ow.nn.TensorDataset([[1.0], [2.0], [3.0]], [0, 1, 0])
        >>> len(data), [[part.tolist() for part in batch] for batch in ow.nn.DataLoader(data, 2, device="cpu")]
        (3, [[[[1.0], [2.0]], [0, 1]], [[[3.0]], [0]]])
    """

    def __init__(self, *arrays: Any) -> None:
        self.arrays = arrays
        self._columns = [_column(array) for array in arrays]
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
    """Return the number of samples, and a function that returns the samples of given numbers as a batch on the host."""
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
    """Return the length of an array, and a function that returns its rows. NumPy's arrays are not copied as a whole."""
    if hasattr(data, "__array__"):
        import numpy as np

        values = np.asarray(data)
        return _length(values.shape), lambda numbers: host_data(values[_index(numbers)])
    content, shape, dtype = host_data(data)
    length = _length(shape)
    stride = content.nbytes // max(length, 1)

    def rows(numbers: Sequence[int]) -> HostData:
        joined = b"".join(content[stride * number : stride * (number + 1)] for number in numbers)
        return HostData(memoryview(joined), (len(numbers), *shape[1:]), dtype)

    return length, rows


def _index(numbers: Sequence[int]) -> slice | list[int]:
    """Return an index for NumPy: a slice for consecutive numbers, which NumPy does not copy."""
    return slice(numbers.start, numbers.stop) if isinstance(numbers, range) else list(numbers)


def _length(shape: tuple[int, ...]) -> int:
    if not shape:
        raise ShapeError("an array of a data set needs an axis of samples")
    return shape[0]


def _joined(samples: list[Any]) -> Any:
    """Return samples as a batch: numbers and arrays stacked, tuples and dicts entry by entry."""
    sample = samples[0]
    if isinstance(sample, Mapping):
        return {key: _joined([item[key] for item in samples]) for key in sample}
    if isinstance(sample, tuple):
        return tuple(_joined(list(parts)) for parts in zip(*samples, strict=True))
    parts = [host_data(item) for item in samples]
    _, shape, dtype = parts[0]
    if any(part.shape != shape or part.dtype is not dtype for part in parts):
        raise ShapeError(f"the samples of a batch must have one shape and type, not {shape} {dtype} and others")
    return HostData(memoryview(b"".join(part.content for part in parts)), (len(parts), *shape), dtype)


def _on_host(batch: Any) -> Batch:
    if isinstance(batch, HostData):
        return batch
    if isinstance(batch, Mapping):
        return {key: _on_host(value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_on_host(value) for value in batch)
    return host_data(batch)
