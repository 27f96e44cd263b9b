"""State and parameters in fewer bits, in NumPy: what `wgsl.slot_storage` and `wgsl.param_storage` do in the shaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cache
from typing import Any

import numpy as np

from ..wgsl import link, package_loader, slot_storage
from ..wgsl.print_python import compile_python, print_python
from ..wgsl.shell import BLOCK
from .numpy_entries import taking_part

__all__ = ["REPLACEMENTS", "Params", "Slot", "codec"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


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

    def rows(self, size: int, length: int) -> Slot:
        """The slot as rows: `load` and `store` are given the numbers of some. Not for 8 bits."""
        found = copy(self)
        found._stored = self._stored[:size].reshape(-1, length)
        return found

    def load(self, part: slice | Array) -> Array:
        """Some elements as float32."""
        stored: Array = self._stored[part]
        if self._kind == "float32":
            return stored
        if self._kind == "bfloat16":
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        elif self._kind == "float16":
            stored = stored.astype(np.float32)
        else:
            assert self._largest is not None
            assert isinstance(part, slice)
            blocks = self._largest[part.start // BLOCK : -(-part.stop // BLOCK)]
            within = part.start % BLOCK
            stored = numbers_of(self._kind)[stored] * np.repeat(blocks, BLOCK)[within : within + stored.size]
        return stored

    def store(self, part: slice | Array, values: Array, seed: int) -> None:
        """Store some elements, from the beginning of a block on to the end of a tensor or of a block.

        Args:
            part: which.
            values: float32.
            seed: of the rounding at random.
        """
        if self._kind == "bfloat16":
            place = self._places(part)
            random = codec()["rounding_bits"](place, np.uint32(seed))
            values = codec()["to_bfloat16_stochastic"](values, random)
        elif self._kind.startswith("dynamic8"):
            assert self._largest is not None
            assert isinstance(part, slice)
            padded = np.zeros(-(-values.size // BLOCK) * BLOCK, np.float32)
            padded[: values.size] = values
            blocks = np.abs(padded.reshape(-1, BLOCK)).max(axis=1)
            self._largest[part.start // BLOCK : part.start // BLOCK + blocks.size] = blocks
            scaled = padded.reshape(-1, BLOCK) / np.where(blocks > 0, blocks, np.float32(1))[:, None]
            values = np.searchsorted(_edges(self._kind), scaled.ravel()[: values.size])
        self._stored[part] = values

    def _places(self, part: slice | Array) -> Array:
        if isinstance(part, slice):
            return np.arange(part.start, part.stop, dtype=np.uint32)
        length = np.uint32(self._stored.shape[1])
        found: Array = part[:, None] * length + np.arange(length, dtype=np.uint32)
        return found


class Params:
    """The parameters of an arena over their bytes.

    Args:
        kind: of `wgsl.param_storage`; "" for float32.
        stored: the bytes of the parameters.
        beside: those of what lies beside them, if it is needed.
    """

    def __init__(self, kind: str, stored: Array, beside: Array | None) -> None:
        self._kind = kind
        self._stored = stored.view(np.float32)
        self._beside = None if beside is None else beside.view(np.uint16)

    def load(self, part: slice) -> Array:
        """What is updated of some elements, as float32."""
        params: Array = self._stored[part]
        if self._beside is None:
            return params
        beside = self._beside[part].astype(np.uint32)
        return np.asarray(codec()["join_halves" if self._kind == "master" else "add_cut_off"](params, beside))

    def store(self, part: slice, values: Array, seed: int | None = None) -> None:
        """Store some elements; without a seed those that are rounded at random are rounded to the nearest."""
        functions = codec()
        if self._kind == "master":
            self._stored[part] = functions["upper_half"](values)
            self._lower(part, functions["lower_half"](values))
            return
        rounded = values
        if self._kind == "stochastic" and seed is not None:
            random = functions["rounding_bits"](np.arange(part.start, part.stop, dtype=np.uint32), np.uint32(seed))
            rounded = functions["from_bfloat16"](functions["to_bfloat16_stochastic"](values, random))
        elif self._kind:
            rounded = functions["from_bfloat16"](functions["to_bfloat16"](values))
        if self._kind == "kahan":
            self._lower(part, functions["to_bfloat16"](values - rounded))
        self._stored[part] = rounded

    def round(self, part: slice) -> None:
        """To the nearest, but for vectors of bfloat16."""
        old = self._stored[part].copy()
        beside = None if self._beside is None else self._beside[part].copy()
        digits = np.zeros(-(-old.size // 4) * 4, np.uint32)
        digits[: old.size] = old.view(np.uint32) & 0xFFFF
        stay = np.repeat(~digits.reshape(-1, 4).any(axis=1), 4)[: old.size]
        self.store(part, self.load(part))
        self._stored[part][stay] = old[stay]
        if self._beside is not None and beside is not None:
            self._beside[part][stay] = beside[stay]

    def _lower(self, part: slice, halves: Array) -> None:
        assert self._beside is not None
        self._beside[part] = halves


@cache
def numbers_of(kind: str) -> Array:
    """The numbers of an 8-bit map in order."""
    codes, one = np.arange(256, dtype=np.uint32), np.float32(1)
    decoded: Array = codec()[f"from_{kind}"](codes, one)
    return decoded


@cache
def _edges(kind: str) -> Array:
    numbers = numbers_of(kind)
    edges: Array = (numbers[1:] + numbers[:-1]) * np.float32(0.5)
    return edges


@cache
def codec() -> dict[str, Any]:
    """The functions of ``shaders/lib/storage.wgsl``, printed."""
    module = link(package_loader()(("lib", "storage")))
    return compile_python(print_python(module, "numpy"), "storage")


def _chosen(p: Parameters, stored: Array, largest: Array, entries: Array, scalars: Array) -> Iterator[Any]:
    """For each tensor that takes part: its row of scalars, the slot, its elements there, and as they are loaded."""
    slot = Slot(tuple(slot_storage.BITS)[p["kind"]], stored, largest)
    for _, row, (_, first, other) in taking_part(p, entries, 3, scalars):
        yield row, slot, slice(first, first + p["size"]), slice(other, other + p["size"])


def _load_state(p: Parameters, stored: Array, largest: Array, loaded: Array, entries: Array, scalars: Array) -> None:
    for _, slot, part, other in _chosen(p, stored, largest, entries, scalars):
        loaded.view(np.float32)[other] = slot.load(part)


def _store_state(p: Parameters, stored: Array, largest: Array, loaded: Array, entries: Array, scalars: Array) -> None:
    for row, slot, part, other in _chosen(p, stored, largest, entries, scalars):
        step = int(row.view(np.float32)[p["step_word"]])
        slot.store(part, loaded.view(np.float32)[other], 2 * step + p["seed"])


REPLACEMENTS: dict[str, Callable[..., None]] = {"load_state": _load_state, "store_state": _store_state}
