"""The interface of a compared library: arrays, operations and their gradients, optimizer steps, training steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ...runtime.device import Device

__all__ = ["Array", "Library", "NotOffered", "Operation", "float_arguments", "is_processor"]

Array = npt.NDArray[Any]
Operation = Callable[..., Any]


class NotOffered(Exception):
    """A library is not installed or lacks what a case needs; the message says which."""


def is_processor(device: Device) -> bool:
    """Return whether a device computes on the processor, as software adapters do."""
    return device.info.kind in ("cpu", "software")


class Library(ABC):
    """A library on one device. What a library lacks raises `NotOffered`.

    Attributes:
        name: the package.
        operations: by name, functions of the library's arrays, with options as keyword arguments.
    """

    name: ClassVar[str]
    operations: Mapping[str, Operation]

    @abstractmethod
    def array(self, values: Array) -> Any:
        """Return the library's array of these values, on its device."""

    @abstractmethod
    def values(self, result: Any) -> Array:
        """Return the values of a result as a NumPy array."""

    def wait(self) -> None:  # noqa: B027
        """Wait until the results of all calls are computed."""

    def call(self, operation: str, arrays: Sequence[Array], **options: Any) -> Callable[[], Any]:
        """Return a call that computes an operation and returns the result."""
        function, inputs = self._operation(operation), list(map(self.array, arrays))
        return lambda: function(*inputs, **options)

    def gradients(self, operation: str, arrays: Sequence[Array], **options: Any) -> Callable[[], Any]:
        """Return a call that computes the gradients of the sum of an operation's result by all float32 arrays."""
        raise NotOffered(f"{self.name} has no gradients here")

    def adamw(self, sizes: Sequence[int], is_compiled: bool) -> Callable[[], Any]:
        """Return a step of AdamW over vectors of these sizes, whose gradients are constant."""
        raise NotOffered(f"{self.name} has no optimizers here")

    def training(self, model: str) -> Callable[[], Any]:
        """Return a training step of a model over the batch of `training_data`."""
        raise NotOffered(f"the suite has no '{model}' in {self.name}")

    def peak_memory(self, model: str) -> int:
        """Return the largest number of bytes in use while a model is made and trained for three steps."""
        raise NotOffered(f"{self.name} does not report its memory")

    def upload(self, values: Array) -> Callable[[], Any]:
        """Return a call that copies values to the library's device."""
        return lambda: self.array(values)

    def download(self, values: Array) -> Callable[[], Any]:
        """Return a call that copies an array of these values to the host."""
        array = self.array(values)
        return lambda: self.values(array)

    def _operation(self, name: str) -> Operation:
        if name not in self.operations:
            raise NotOffered(f"the suite has no '{name}' in {self.name}")
        return self.operations[name]


def float_arguments(arrays: Sequence[Array]) -> tuple[int, ...]:
    """Return the positions of the float32 arrays, which have gradients."""
    return tuple(index for index, array in enumerate(arrays) if array.dtype == np.float32)
