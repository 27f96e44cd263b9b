"""State in fewer bits, in NumPy: what `wgsl.slot_storage` does in the shaders."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..wgsl import compile_python, link, package_loader, print_python
from ..wgsl.shell import BLOCK

__all__ = ["Slot"]

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
        self._largest = None if largest is None else largest.view(np.float32)
        types: dict[str, Any] = {"float32": np.float32, "bfloat16": np.uint16, "float16": np.float16}
        self._stored = stored.view(types.get(kind, np.uint8))

    def load(self, part: slice) -> Array:
        """Some elements, from the beginning of a block on, as float32."""
        stored: Array = self._stored[part]
        if self._kind == "float32":
            return stored
        if self._kind == "bfloat16":
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        elif self._kind == "float16":
            stored = stored.astype(np.float32)
        else:
            assert self._largest is not None
            blocks = self._largest[part.start // BLOCK : -(-part.stop // BLOCK)]
            stored = numbers_of(self._kind)[stored] * np.repeat(blocks, BLOCK)[: stored.size]
        return stored

    def store(self, part: slice, values: Array, seed: int) -> None:
        """Store some elements, from the beginning of a block on to the end of a tensor or of a block.

        Args:
            part: which.
            values: float32.
            seed: of the rounding at random.
        """
        if self._kind == "bfloat16":
            place = np.arange(part.start, part.stop, dtype=np.uint32)
            random = _codec()["rounding_bits"](place, np.uint32(seed))
            values = _codec()["to_bfloat16_stochastic"](values, random)
        elif self._kind.startswith("dynamic8"):
            assert self._largest is not None
            padded = np.zeros(-(-values.size // BLOCK) * BLOCK, np.float32)
            padded[: values.size] = values
            blocks = np.abs(padded.reshape(-1, BLOCK)).max(axis=1)
            self._largest[part.start // BLOCK : part.start // BLOCK + blocks.size] = blocks
            scaled = padded.reshape(-1, BLOCK) / np.where(blocks > 0, blocks, np.float32(1))[:, None]
            values = np.searchsorted(_edges(self._kind), scaled.ravel()[: values.size])
        self._stored[part] = values


@cache
def numbers_of(kind: str) -> Array:
    """The numbers of an 8-bit map in order."""
    codes, one = np.arange(256, dtype=np.uint32), np.float32(1)
    decoded: Array = _codec()[f"from_{kind}"](codes, one)
    return decoded


@cache
def _edges(kind: str) -> Array:
    numbers = numbers_of(kind)
    edges: Array = (numbers[1:] + numbers[:-1]) * np.float32(0.5)
    return edges


@cache
def _codec() -> dict[str, Any]:
    """The functions of ``shaders/lib/storage.wgsl``, printed."""
    module = link(package_loader()(("lib", "storage")))
    return compile_python(print_python(module, "numpy"), "storage")
