"""The parameters of an optimizer as one vector, for methods whose decisions are made on the host.

Each tensor begins at a multiple of 64 elements, where every device can bind it; the elements between are zero. Products
and sums stay on the device as tensors of one element until they are read.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any

from ..autograd import no_grad, note_grad
from ..errors import ShapeError
from ..launch import apply
from ..ops.arithmetic import multiply
from ..ops.creation import zeros
from ..ops.reduce import sum as sum_of
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32
from ..tensors import Parameter, Tensor, tensor

__all__ = ["FOLDED", "Reading", "Space", "dot", "fold_magnitudes", "largest", "read", "sum_of_magnitudes"]

_ITEMSIZE = 4
FOLDED = 64
"""Elements of the result of `fold_magnitudes`."""

Reading = Generator[View, memoryview, Any]
"""A computation that yields views and is sent their contents."""


class Space:
    """A space of vectors with an element for each element of some parameters.

    Args:
        params: all on one device.
    """

    def __init__(self, params: Sequence[Parameter]) -> None:
        self.params = list(params)
        self.device: Device = params[0].device
        self._firsts: list[int] = []
        self.size = 0
        for param in params:
            self._firsts.append(self.size)
            self.size += -(-param.size // FOLDED) * FOLDED
        self.size = max(self.size, FOLDED)
        self.count = sum(param.size for param in params)

    def parts(self, vector: Tensor) -> list[Tensor]:
        """Return the part of each parameter, in its shape; no copies."""
        return [
            Tensor(vector.view.part(_ITEMSIZE * first, _ITEMSIZE * param.size), param.shape, FLOAT32)
            for first, param in zip(self._firsts, self.params, strict=True)
        ]

    def gather(self, values: Sequence[Any]) -> Tensor:
        """Return a vector of tensors or arrays, one for each parameter; None is zero.

        Raises:
            ShapeError: one has another shape than its parameter, or there are too few or many.
        """
        if len(values) != len(self.params):
            raise ShapeError(f"{len(values)} tensors were given for {len(self.params)} parameters")
        vector = zeros((self.size,), self.device)
        for part, value in zip(self.parts(vector), values, strict=True):
            if value is None:
                continue
            if not isinstance(value, Tensor):
                value = tensor(value, device=self.device, dtype=FLOAT32)
            if value.shape != part.shape:
                raise ShapeError(f"a tensor has the shape {value.shape}, its parameter {part.shape}")
            self.device.copy(value.view, part.view)
        return vector

    def values(self) -> Tensor:
        """Return the parameters as a vector."""
        return self.gather(self.params)

    def gradient(self) -> Tensor:
        """Return the gradients as a vector; zero where there is none."""
        for param in self.params:
            note_grad(param, reads=True)
        return self.gather([param._grad for param in self.params])

    def assign(self, vector: Tensor) -> None:
        """Set the parameters to a vector."""
        for part, param in zip(self.parts(vector), self.params, strict=True):
            param.assign(part)

    def compact(self, raw: memoryview) -> bytes:
        """Return the bytes of a vector without the padding between tensors, as in torch's layout."""
        return b"".join(
            raw[_ITEMSIZE * first : _ITEMSIZE * (first + param.size)]
            for first, param in zip(self._firsts, self.params, strict=True)
        )

    def upload(self, content: memoryview) -> Tensor:
        """Return the vector of bytes in the layout of `compact`."""
        spread = memoryview(bytearray(_ITEMSIZE * self.size))
        end = 0
        for first, param in zip(self._firsts, self.params, strict=True):
            start, end = end, end + _ITEMSIZE * param.size
            spread[_ITEMSIZE * first : _ITEMSIZE * (first + param.size)] = content[start:end]
        return tensor(spread.cast("f"), device=self.device, dtype=FLOAT32)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of two vectors, on the device."""
    with no_grad():
        return sum_of(multiply(a, b))


def sum_of_magnitudes(vector: Tensor) -> Tensor:
    """Return the sum of the absolute values, on the device."""
    return sum_of(apply("vectors", "magnitude", vector))


def fold_magnitudes(vector: Tensor) -> Tensor:
    """Return 64 of a vector's absolute values, the largest among them."""
    view, size = vector.view, vector.size
    while True:
        quarter = -(-size // (4 * FOLDED)) * FOLDED
        starts = [min(quarter_number * quarter, size - quarter) for quarter_number in range(4)]  # they may overlap
        parts = (view.part(_ITEMSIZE * start, _ITEMSIZE * quarter) for start in starts)
        folded = apply("vectors", "largest_magnitude", *(Tensor(part, (quarter,), FLOAT32) for part in parts))
        view, size = folded.view, quarter
        if size == FOLDED:
            return folded


def largest(folded: Sequence[float]) -> float:
    """Return the largest number; NaN if one is."""
    return math.nan if any(map(math.isnan, folded)) else max(folded)


def read(*tensors: Tensor) -> Generator[View, memoryview, list[list[float]]]:
    """Return the values of these tensors of float32, with one wait for all of them."""
    device = tensors[0].device
    buffer = device.allocate(_ITEMSIZE * sum(tensor_.size for tensor_ in tensors))
    end = 0
    for tensor_ in tensors:
        start, end = end, end + tensor_.view.nbytes
        device.copy(tensor_.view, View(buffer, start, tensor_.view.nbytes))
    words = list(map(float, (yield View(buffer, 0, end)).cast("f").tolist()))
    values: list[list[float]] = []
    for tensor_ in tensors:
        values.append(words[: tensor_.size])
        words = words[tensor_.size :]
    return values
