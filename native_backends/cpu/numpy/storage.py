"""Slots of state and parameters of a rule over their bytes, in NumPy, of which some elements are read or written."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from ....wgsl import slot_storage
from ....wgsl.shell import BLOCK
from ...arrays import numpy_arrays as xp
from ...arrays.storage import block_maxima, decoded, encoded, split_params, whole_params

__all__ = ["Params", "Slot"]

Array = np.ndarray[Any, Any]


class Slot:
    """A slot of state over its bytes.

    Args:
        kind: of `wgsl.slot_storage`.
        stored: the bytes of the slot.
        largest: for 8 bits, those of the largest magnitude of each block.
    """

    def __init__(self, kind: str, stored: Array, largest: Array | None = None) -> None:
        self._kind = kind
        self._largest = None if largest is None else xp.floats(largest)
        self._codes = xp.floats(stored) if kind == "float32" else xp.codes(stored, slot_storage.BITS[kind])

    def rows(self, size: int, length: int) -> Slot:
        """Return the slot as rows, of which `load` and `store` take numbers. Not for 8 bits."""
        slot = copy(self)
        slot._codes = self._codes[:size].reshape(-1, length)
        return slot

    def load(self, part: slice | Array) -> Array:
        """Return some elements as float32."""
        codes: Array = self._codes[part]
        if self._kind == "float32":
            return codes
        if self._largest is None:
            return np.asarray(decoded(xp, self._kind, codes))
        assert isinstance(part, slice)
        blocks = self._largest[part.start // BLOCK : -(-part.stop // BLOCK)]
        within = part.start % BLOCK
        largest = np.repeat(blocks, BLOCK)[within : within + codes.size]
        return np.asarray(decoded(xp, self._kind, codes, largest))

    def store(self, part: slice | Array, values: Array, seed: int) -> None:
        """Store some elements, from the beginning of a block on to the end of a tensor or of a block.

        Args:
            part: which.
            values: float32.
            seed: of the rounding at random.
        """
        if self._kind == "float32":
            self._codes[part] = values
            return
        largest = None
        if self._largest is not None:
            assert isinstance(part, slice)
            values = np.broadcast_to(values, self._codes[part].shape)  # a rule may give a number
            blocks = block_maxima(xp, values)
            self._largest[part.start // BLOCK : part.start // BLOCK + blocks.size] = blocks
            largest = np.repeat(blocks, BLOCK)[: values.size]
        indices = self._indices(part) if self._kind == "bfloat16" else None
        self._codes[part] = encoded(xp, self._kind, values, indices, np.uint32(seed), largest)

    def _indices(self, part: slice | Array) -> Array:
        if isinstance(part, slice):
            return np.arange(part.start, part.stop, dtype=np.uint32)
        length = np.uint32(self._codes.shape[1])
        indices: Array = part[:, None] * length + np.arange(length, dtype=np.uint32)
        return indices


class Params:
    """The parameters of an arena over their bytes.

    Args:
        kind: of `wgsl.param_storage`; "" for float32.
        stored: the bytes of the parameters.
        codes: the bytes of the 16-bit codes stored next to them, if there are any.
    """

    def __init__(self, kind: str, stored: Array, codes: Array | None) -> None:
        self._kind = kind
        self._stored = xp.floats(stored)
        self._codes = None if codes is None else xp.codes(codes, 16)

    def load(self, part: slice) -> Array:
        """Return some elements, as they are updated, as float32."""
        params: Array = self._stored[part]
        if self._codes is None:
            return params
        return np.asarray(whole_params(xp, self._kind, params, self._codes[part].astype(np.uint32)))

    def store(self, part: slice, values: Array, seed: int | None = None) -> None:
        """Store some elements; without a seed those that are rounded at random are rounded to the nearest."""
        if not self._kind:
            self._stored[part] = values
            return
        random = None
        if self._kind == "stochastic" and seed is not None:
            random = np.arange(part.start, part.stop, dtype=np.uint32), np.uint32(seed)
        self._stored[part], codes = split_params(xp, self._kind, values, random)
        if codes is not None:
            assert self._codes is not None
            self._codes[part] = codes

    def round(self, part: slice) -> None:
        """Round some elements to the nearest, but for vectors of bfloat16."""
        old = self._stored[part].copy()
        codes = None if self._codes is None else self._codes[part].copy()
        digits = np.zeros(-(-old.size // 4) * 4, np.uint32)
        digits[: old.size] = old.view(np.uint32) & 0xFFFF
        stay = np.repeat(~digits.reshape(-1, 4).any(axis=1), 4)[: old.size]
        self.store(part, self.load(part))
        self._stored[part][stay] = old[stay]
        if self._codes is not None and codes is not None:
            self._codes[part][stay] = codes[stay]
