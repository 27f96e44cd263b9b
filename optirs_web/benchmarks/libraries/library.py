"""What the suite asks of a library: arrays, single operations with their gradients, optimizer steps, training steps."""

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
    """A library does not have what a case needs, or is not installed; the message says which."""


def is_processor(device: Device) -> bool:
    """Whether a device computes on the processor, as software adapters do."""
    return device.info.kind in ("cpu", "software")


class Library(ABC):
    """A library on one device.

    Attributes:
        name: its package.
        operations: by name, functions of arrays; options are keyword arguments.
    """

    name: ClassVar[str]
    operations: Mapping[str, Operation]

    @abstractmethod
    def array(self, values: Array) -> Any:
        """Return the library's array of these values, on its device."""

    @abstractmethod
    def values(self, result: Any) -> Array:
        """Return the values of a result."""

    def wait(self) -> None:  # noqa: B027
        """Wait until what was called has been computed."""

    def call(self, operation: str, arrays: Sequence[Array], **options: Any) -> Callable[[], Any]:
        """Return a call that computes an operation and returns the result."""
        function, inputs = self._operation(operation), [self.array(one) for one in arrays]
        return lambda: function(*inputs, **options)

    def gradients(self, operation: str, arrays: Sequence[Array], **options: Any) -> Callable[[], Any]:
        """Return a call that computes the gradients of the sum of an operation's result, for all float arrays."""
        raise NotOffered(f"{self.name} has no gradients here")

    def adamw(self, sizes: Sequence[int], is_compiled: bool) -> Callable[[], Any]:
        """Return a step of AdamW over vectors of these sizes whose gradients are there."""
        raise NotOffered(f"{self.name} has no optimizers here")

    def training(self, model: str) -> Callable[[], Any]:
        """Return a training step of a model of `training_data`, over the same batch each time."""
        raise NotOffered(f"the suite has no '{model}' in {self.name}")

    def peak_memory(self, model: str) -> int:
        """Return the most bytes in use while a model is made and trained for a few steps."""
        raise NotOffered(f"{self.name} does not tell its memory")

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
    """Return the positions of the arrays of floats, for which there are gradients."""
    return tuple(number for number, one in enumerate(arrays) if one.dtype == np.float32)
