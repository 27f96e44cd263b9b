"""Buffers: tensors of a module that are not trained, such as running means, in memory that programs can write to."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..hostdata import HostData
from ..launch import contiguous
from ..recovery import KeepsValues, keep_track
from ..runtime.device import Device
from ..runtime.dtypes import dtype as dtype_of
from ..tensors import Tensor, tensor

__all__ = ["Buffer"]


class Buffer(Tensor, KeepsValues):
    """A tensor that belongs to a module, is not trained, and goes into its `state_dict`.

    Its memory stays the same: `assign` writes there, also at each replay of a compiled step. `optirs_web.snapshot`
    includes it.

    Args:
        data: what `tensor` takes. The elements of a tensor are shared, not copied.
        device: what `optirs_web.device` takes.
        persistent: it goes into the `state_dict` of a module that it is assigned to.

    Example:
        >>> import optirs_web as ow
        >>> count = ow.nn.Buffer([0.0], device="cpu")
        >>> count.assign(count + 1.0)
        >>> count.tolist()
        [1.0]
    """

    def __init__(self, data: Any, device: str | Device | None = None, *, persistent: bool = True) -> None:
        """Share the memory of a tensor, or copy data to a device."""
        is_there = isinstance(data, Tensor) and device in (None, data.device, data.device.name)
        source = contiguous(data if is_there else tensor(data, device=device))
        super().__init__(source.view, source.shape, source.dtype)
        self.persistent = persistent
        self._version = 0
        self._snapshot: memoryview | None = None
        keep_track(self)

    @property
    def _tracked(self) -> Any:
        """The buffer itself: results computed from it check its version, as with a parameter."""
        return self

    def assign(self, values: Any) -> None:
        """Write new values of the same shape and type, in place.

        Raises:
            ShapeError: the shape or the type differs.
        """
        source = values if isinstance(values, Tensor) else tensor(values, device=self.device, dtype=self.dtype)
        if source.shape != self.shape or source.dtype is not self.dtype:
            raise ShapeError(f"a {self.dtype} buffer of shape {self.shape} cannot take {source!r}")
        if source.device is self.device:
            self.device.copy(source.view, self.view)
        else:
            self.device.write(self.view, source.device.read(source.view))
        self.note_change()

    def note_change(self) -> None:
        """Record that it was written in place: results computed from it before can no longer be differentiated."""
        self._version += 1

    def move_to(self, device: Device, content: memoryview) -> None:
        """Continue with these bytes on a device; programs that bound the old memory record again."""
        self.view.buffer.retired = True
        self.view = tensor(HostData(content, self.shape, self.dtype), device=device).view
        self.note_change()

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        return Buffer(super().__deepcopy__(memo), persistent=self.persistent)

    def __reduce__(self) -> tuple[Any, ...]:
        content = bytes(self.device.read(self.view))
        return _restore, (content, self.shape, self.dtype.name, self.device.name, self.persistent)

    def revive(self, device: Device) -> None:
        """Continue with the snapshot's values on this device."""
        assert self._snapshot is not None
        self.move_to(device, self._snapshot)


def _restore(content: bytes, shape: tuple[int, ...], dtype: str, device: str, persistent: bool) -> Buffer:
    """Return a pickled buffer."""
    values = tensor(HostData(memoryview(content), shape, dtype_of(dtype)), device=device)
    return Buffer(values, persistent=persistent)
