"""DataLoader: batches of a data set on a device; the next batch is uploaded while the device computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import get_ident
from typing import Any

from ..errors import UnsupportedError
from ..hostdata import HostData
from ..ops.random_state import checked_seed
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.registry import device as device_of
from ..tensors import Tensor
from .order import epoch_order
from .samples import Batch, picker

__all__ = ["DataLoader"]


class DataLoader:
    """Iterate over batches of a data set, as tensors on a device.

    Devices work asynchronously: a request for a batch submits the work that was enqueued before, and picks, converts
    and uploads samples while the device is busy with it. Where a step waits for the device by itself, for example to
    read its loss, the next batch is uploaded before that wait. So two buffers of device memory for each array of a
    batch alternate: one is computed with, the other is filled. A batch that is kept longer keeps its buffer, and a
    new one is allocated: a batch that was returned never changes.

    Args:
        dataset: an array (samples along its first axis); a tuple, list or dict of arrays of one length, or a
            `TensorDataset`, whose batches are tuples or dicts of tensors; or anything with ``len()`` and ``[number]``
            that gives samples: numbers, arrays, or tuples and dicts of these. NumPy is not needed: buffers and lists
            do.
        batch_size: samples in a batch.
        shuffle: another order in each epoch, the same on every platform for the same seed.
        drop_last: leave out a last batch that would be smaller.
        collate_fn: makes a batch (an array, or a tuple or dict of arrays) of a list of samples.
        seed: of the order, from 0 to 2**64 - 1.
        device: what `optirs_web.device` takes.
        prefetch: whether to upload the next batch before a wait; without, samples are picked when they are requested.

    Attributes:
        epoch: the number, from 0, of the current or next epoch.
        position: the samples of it that were returned.

    Raises:
        ShapeError: arrays of different lengths; while iterating, samples of different shapes.
        UnsupportedError: the data set has no length; while iterating, a type that no tensor has.
        ValueError: an argument is out of range.

    Example:
        >>> import optirs_web as ow
        >>> images, labels = [[0.0], [1.0], [2.0]], [5, 6, 7]
        >>> loader = ow.nn.DataLoader(ow.nn.TensorDataset(images, labels), batch_size=2, device="cpu")
        >>> [(x.tolist(), y.tolist()) for x, y in loader]
        [([[0.0], [1.0]], [5, 6]), ([[2.0]], [7])]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        seed: int = 0,
        device: str | Device | None = None,
        prefetch: bool = True,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
        self.dataset = dataset
        self.batch_size, self.shuffle, self.drop_last, self.seed = batch_size, shuffle, drop_last, checked_seed(seed)
        self.epoch = self.position = 0
        self._count, self._pick = picker(dataset, collate_fn)
        self._device = device
        self.prefetch = prefetch
        self._is_resuming = False

    @property
    def device(self) -> Device:
        """The device of the batches."""
        return device_of(self._device)

    def __len__(self) -> int:
        """Number of batches of a whole epoch."""
        return self._end // self.batch_size + (self._end % self.batch_size > 0)

    @property
    def _end(self) -> int:
        """Number of samples of a whole epoch."""
        return self._count - self._count % self.batch_size * self.drop_last

    def __iter__(self) -> Iterator[Any]:
        """Iterate over an epoch; or, after `load_state_dict`, over the remainder of one."""
        if self.position and not self._is_resuming:
            self._begin(self.epoch + 1)  # the previous epoch was abandoned
        self._is_resuming = False
        return self._batches(epoch_order(self._count, self.seed, self.epoch) if self.shuffle else range(self._count))

    def _begin(self, epoch: int) -> None:
        self.epoch, self.position = epoch, 0

    def _batches(self, order: Sequence[int]) -> Iterator[Any]:
        epoch, start = self.epoch, self.position
        prefetched = _Prefetched(self._batch)
        try:
            while start < self._end:
                end = min(start + self.batch_size, self._end)
                self.epoch, self.position = epoch, end
                batch = [prefetched.take(order[start:end])]
                start = end
                if self.prefetch and start < self._end:
                    prefetched.expect(self.device, order[start : min(start + self.batch_size, self._end)])
                yield batch.pop()  # no reference remains here
        finally:
            prefetched.forget()
        self._begin(epoch + 1)

    def _batch(self, numbers: Sequence[int]) -> Any:
        device = self.device
        if Device.recorder() is not None:
            raise UnsupportedError("a compiled step cannot load batches; give them to it as arguments")
        device.flush()  # so that the device works while the host picks
        return _uploaded(self._pick(numbers), device, self.batch_size)

    def state_dict(self) -> dict[str, int]:
        """The position after the batches that were returned, as JSON values, for example for a checkpoint's `extra`."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Have the next iteration continue where `state_dict` was called, with the remaining batches of the epoch.

        Raises:
            ValueError: it is the state of another data set, or none.
        """
        try:
            seed, epoch, position = (int(state_dict[key]) for key in ("seed", "epoch", "position"))
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is not a state of a DataLoader: {error!r}") from None
        if not 0 <= position <= self._count or epoch < 0:
            raise ValueError(
                f"epoch {epoch} at sample {position} of {self._count} samples: a state of another data set"
            )
        self.seed, self.epoch, self.position = seed, epoch, position
        self._is_resuming = True


class _Prefetched:
    """The next batch, loaded when the host waits for the device."""

    def __init__(self, load: Callable[[Sequence[int]], Any]) -> None:
        self._load = load
        self._device: Device | None = None
        self._numbers: Sequence[int] = ()
        self._loaded: list[Any] = []

    def expect(self, device: Device, numbers: Sequence[int]) -> None:
        """Load these samples when the host next waits for the device, unless `take` is called before."""
        self._device, self._numbers = device, numbers
        device.meanwhile[self._load_now] = get_ident()

    def _load_now(self) -> None:
        with suppress(Exception):  # `take` loads them again and raises the error
            self._loaded = [self._load(self._numbers)]

    def take(self, numbers: Sequence[int]) -> Any:
        """Return the batch of these numbers, which are those of the last `expect`."""
        loaded = self.forget()
        return loaded[0] if loaded else self._load(numbers)

    def forget(self) -> list[Any]:
        """Cancel the request; return the batch that was loaded, unless its device was lost."""
        device, loaded, self._loaded = self._device, self._loaded, []
        if device is None:
            return []
        device.meanwhile.pop(self._load_now, None)
        return [] if device.lost else loaded


def _uploaded(batch: Batch, device: Device, batch_size: int) -> Any:
    if isinstance(batch, HostData):
        return _upload(batch, device, batch_size)
    if isinstance(batch, dict):
        return {key: _uploaded(array, device, batch_size) for key, array in batch.items()}
    return tuple(_uploaded(array, device, batch_size) for array in batch)


def _upload(rows: HostData, device: Device, batch_size: int) -> Tensor:
    """Upload rows into a buffer of a whole batch's size, so that a smaller batch uses memory of the same size."""
    content, shape, dtype = rows
    nbytes = content.nbytes if not shape or not shape[0] else content.nbytes // shape[0] * max(batch_size, shape[0])
    view = View(device.allocate(nbytes), 0, content.nbytes)
    device.write(view, content)
    return Tensor(view, shape, dtype)
