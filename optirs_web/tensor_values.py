"""The values of a tensor on the host: typed buffers, arrays, lists and numbers, each with its awaitable twin."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from .errors import ShapeError
from .runtime.dtypes import BOOL, DType

if TYPE_CHECKING:
    from .runtime.buffer import View
    from .runtime.device import Device
    from .tensors import Tensor

__all__ = ["TensorValues"]


class TensorValues:
    """Methods that read a tensor. They wait, but for the awaitable twins, which begin to read at the call."""

    shape: tuple[int, ...]
    dtype: DType
    view: View

    @property
    def device(self) -> Device:
        """The device of the tensor."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """The number of elements."""
        raise NotImplementedError

    def read(self) -> memoryview:
        """The values as a typed memoryview of this shape (one empty axis where there are none). Waits.

        Example:
            >>> import optirs_web as ow
            >>> ow.tensor([1.0, 2.0], device="cpu").read().tolist()
            [1.0, 2.0]
        """
        return self._shaped(self.device.read(self.view))

    def read_async(self) -> Coroutine[Any, Any, memoryview]:
        """The awaitable twin of `read`."""
        return self._later(self._shaped)

    def _later(self, finish: Callable[[memoryview], Any]) -> Coroutine[Any, Any, Any]:
        """Begin to read the values, and return a coroutine of `finish`'s result, so that several reads overlap."""
        return _finished(self.device.read_async(self.view), finish)

    def _shaped(self, raw: memoryview) -> memoryview:
        view: memoryview = self.dtype.cast(raw, self.shape)
        return view

    def numpy(self) -> Any:
        """The values as a NumPy array of this shape and dtype. Waits."""
        return self._as_array(self.device.read(self.view))

    def numpy_async(self) -> Coroutine[Any, Any, Any]:
        """The awaitable twin of `numpy`."""
        return self._later(self._as_array)

    def _as_array(self, raw: memoryview) -> Any:
        import numpy as np

        if self.dtype is BOOL:
            return np.frombuffer(raw, np.uint32).reshape(self.shape) != 0
        if self.dtype.itemsize < 4:
            type_ = "float16" if self.dtype == "float16" else "float32"
            return np.asarray(self._shaped(raw), type_).reshape(self.shape)
        return np.frombuffer(raw, dtype=self.dtype.name).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        from .dlpack import exported

        return exported(cast("Tensor", self), **options)

    def __dlpack_device__(self) -> Any:
        from .dlpack import dlpack_device

        return dlpack_device(cast("Tensor", self))

    def tolist(self) -> Any:
        """The values as nested lists, or as a number where there are no axes. Waits."""
        return self._as_list(self.device.read(self.view))

    def tolist_async(self) -> Coroutine[Any, Any, Any]:
        """The awaitable twin of `tolist`."""
        return self._later(self._as_list)

    def _as_list(self, raw: memoryview) -> Any:
        if self.size:
            return self._shaped(raw).tolist()
        nested: Any = []
        for size in reversed(self.shape[: self.shape.index(0)]):
            nested = [copy.deepcopy(nested) for _ in range(size)]
        return nested

    def item(self) -> float | int:
        """The only value. Waits.

        Raises:
            ShapeError: there is more than one, or none.
        """
        self._need_one_element("item")
        return self._only(self.device.read(self.view))

    def item_async(self) -> Coroutine[Any, Any, float | int]:
        """The awaitable twin of `item`."""
        self._need_one_element("item_async")
        return self._later(self._only)

    def _need_one_element(self, call: str) -> None:
        if self.size != 1:
            raise ShapeError(f"{call}() needs a tensor of one element; this one has the shape {self.shape}")

    def _only(self, raw: memoryview) -> float | int:
        value: float | int = self.dtype.cast(raw, (1,))[0]
        return value

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())


async def _finished(reading: Awaitable[memoryview], finish: Callable[[memoryview], Any]) -> Any:
    return finish(await reading)
