"""The parameters of an optimizer as one vector, for methods whose decisions are made on the host.

Each tensor begins at a multiple of 64 elements, where every device can bind it; what lies between is zero. Products and
sums stay on the device as tensors of one element until they are read.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any

from ..autograd import no_grad, note_grad
from ..errors import ShapeError
from ..ops.arithmetic import multiply
from ..ops.creation import zeros
from ..ops.launch import apply
from ..ops.reduce import sum as sum_of
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32
from ..tensors import Parameter, Tensor, tensor

__all__ = ["FOLDED", "Reading", "Space", "dot", "fold_magnitudes", "largest", "read", "sum_of_magnitudes"]

_ITEMSIZE = 4
FOLDED = 64
"""Elements that `fold_magnitudes` leaves."""

Reading = Generator[View, memoryview, Any]
"""A computation that now and then hands out a view and is sent its content."""


class Space:
    """Vectors with a place for each element of some parameters.

    Args:
        params: all on one device.
    """

    def __init__(self, params: Sequence[Parameter]) -> None:
        self.params = list(params)
        self.device: Device = params[0].device
        self._firsts: list[int] = []
        self.size = 0
        for one in params:
            self._firsts.append(self.size)
            self.size += -(-one.size // FOLDED) * FOLDED
        self.size = max(self.size, FOLDED)
        self.count = sum(one.size for one in params)

    def parts(self, vector: Tensor) -> list[Tensor]:
        """The part of each parameter, in its shape; no copies."""
        return [
            Tensor(vector.view.part(_ITEMSIZE * first, _ITEMSIZE * one.size), one.shape, FLOAT32)
            for first, one in zip(self._firsts, self.params, strict=True)
        ]

    def gather(self, values: Sequence[Any]) -> Tensor:
        """A vector of tensors or arrays, one for each parameter; None is zero.

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
        """The parameters."""
        return self.gather(self.params)

    def gradient(self) -> Tensor:
        """The gradients; zero where there is none."""
        for one in self.params:
            note_grad(one, reads=True)
        return self.gather([one._grad for one in self.params])

    def assign(self, vector: Tensor) -> None:
        """Make these the parameters."""
        for part, param in zip(self.parts(vector), self.params, strict=True):
            param.assign(part)

    def compact(self, raw: memoryview) -> bytes:
        """The bytes of a vector without what lies between the tensors: in torch's layout."""
        return b"".join(
            raw[_ITEMSIZE * first : _ITEMSIZE * (first + one.size)]
            for first, one in zip(self._firsts, self.params, strict=True)
        )

    def upload(self, content: memoryview) -> Tensor:
        """The vector of what `compact` gave."""
        spread = memoryview(bytearray(_ITEMSIZE * self.size))
        end = 0
        for first, one in zip(self._firsts, self.params, strict=True):
            start, end = end, end + _ITEMSIZE * one.size
            spread[_ITEMSIZE * first : _ITEMSIZE * (first + one.size)] = content[start:end]
        return tensor(spread.cast("f"), device=self.device, dtype=FLOAT32)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The product of two vectors, on the device."""
    with no_grad():
        return sum_of(multiply(a, b))


def sum_of_magnitudes(vector: Tensor) -> Tensor:
    """The sum of the absolute values, on the device."""
    return sum_of(apply("vectors", "magnitude", vector))


def fold_magnitudes(vector: Tensor) -> Tensor:
    """64 absolute values of a vector, the largest among them."""
    view, size = vector.view, vector.size
    while True:
        quarter = -(-size // (4 * FOLDED)) * FOLDED
        starts = [min(turn * quarter, size - quarter) for turn in range(4)]  # they may overlap
        parts = (view.part(_ITEMSIZE * start, _ITEMSIZE * quarter) for start in starts)
        folded = apply("vectors", "largest_magnitude", *(Tensor(one, (quarter,), FLOAT32) for one in parts))
        view, size = folded.view, quarter
        if size == FOLDED:
            return folded


def largest(folded: Sequence[float]) -> float:
    """The largest; NaN if one is."""
    return math.nan if any(map(math.isnan, folded)) else max(folded)


def read(*tensors: Tensor) -> Generator[View, memoryview, list[list[float]]]:
    """The values of these tensors of float32, with one wait for all of them."""
    device = tensors[0].device
    together = device.allocate(_ITEMSIZE * sum(one.size for one in tensors))
    end = 0
    for one in tensors:
        start, end = end, end + one.view.nbytes
        device.copy(one.view, View(together, start, one.view.nbytes))
    words = list(map(float, (yield View(together, 0, end)).cast("f").tolist()))
    values: list[list[float]] = []
    for one in tensors:
        values.append(words[: one.size])
        words = words[one.size :]
    return values
