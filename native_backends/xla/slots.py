"""State and parameters in fewer bits: what `wgsl.slot_storage` and `wgsl.param_storage` do in the shaders.

Elements are seen by blocks, (blocks, BLOCK) each, or by the rows of a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...wgsl import param_storage, slot_storage
from ..arrays import jax_arrays as xp
from ..arrays.jax_arrays import as_type, floats, put_at
from ..arrays.storage import decoded, encoded, split_params, whole_params
from .bindings import Array

__all__ = ["Params", "Slot", "largest_of"]


class Slot:
    """A slot of state.

    Args:
        kind: of `wgsl.slot_storage`.
        stored: the words of the slot.
        shape: how its elements are seen.
        largest: for 8 bits, the largest magnitude of each block.
    """

    def __init__(self, kind: str, stored: Array, shape: tuple[int, int], largest: Array | None = None) -> None:
        self._kind = kind
        self._is_blockwise = slot_storage.is_blockwise([kind])
        self._largest = None if largest is None else floats(largest).reshape(-1, 1)
        codes = floats(stored)
        if kind != "float32":
            codes = xp.codes(stored, slot_storage.BITS[kind]).astype(np.uint32)
        self._extra = codes[shape[0] * shape[1] :]  # of a tensor with an odd number of 16-bit elements
        self._codes = codes[: shape[0] * shape[1]].reshape(shape)

    def rows(self, numbers: Array) -> Slot:
        """Return some of the rows, to load them."""
        rows = object.__new__(Slot)
        rows._kind, rows._is_blockwise, rows._largest = self._kind, False, None
        rows._codes = jnp.take(self._codes, numbers, axis=0, mode="clip")
        return rows

    def load(self) -> Array:
        """Return the elements as f32."""
        return decoded(xp, self._kind, self._codes, self._largest if self._is_blockwise else None)

    def stored(self, values: Array, numbers: Array, seed: Array, mask: Array) -> tuple[Array, ...]:
        """Return the words with these values where the mask is set; for 8 bits, the largest magnitudes as well."""
        if not self._is_blockwise:
            return (self.packed(jnp.where(mask, encoded(xp, self._kind, values, numbers, seed), self._codes)),)
        kept = jnp.where(mask, values, np.float32(0))
        largest = jnp.abs(kept).max(axis=1, keepdims=True)
        codes = jnp.where(mask, encoded(xp, self._kind, kept, numbers, seed, largest), self._codes)
        return xp.words(codes.astype(np.uint8)), jnp.where(
            mask.any(axis=1, keepdims=True), largest, self._largest
        ).reshape(-1)

    def with_rows(self, rows: Array, values: Array, numbers: Array, seed: Array, changes: Array) -> Array:
        """Return the words with these values in some rows, where these change."""
        codes = encoded(xp, self._kind, values, numbers, seed)
        return self.packed(put_at(self._codes, rows, codes, changes))

    def packed(self, codes: Array) -> Array:
        """Return the words of these codes; not for 8 bits."""
        flat = jnp.concatenate([codes.reshape(-1), self._extra]) if self._extra.size else codes.reshape(-1)
        return flat if self._kind == "float32" else xp.words(flat.astype(np.uint16))


class Params:
    """The parameters of an arena.

    Args:
        kind: of `wgsl.param_storage`; "" for float32.
        bound: what the kernel is bound to.
        shape: how the elements are seen.
    """

    def __init__(self, kind: str, bound: Mapping[str, Array], shape: tuple[int, int]) -> None:
        self._kind = kind
        self._params = floats(bound["params"]).reshape(shape)
        self._name = param_storage.SLOTS.get(kind, "")
        has_codes = self._name in bound
        self._codes = xp.codes(bound[self._name], 16).astype(np.uint32).reshape(shape) if has_codes else None

    def load(self) -> Array:
        """Return the parameters to update, as f32 in the shape of the elements."""
        return whole_params(xp, self._kind, self._params, self._codes)

    def stored(self, values: Array, mask: Array, random: tuple[Array, Array] | None = None) -> dict[str, Array]:
        """Return the bindings with these values where the mask is set.

        Args:
            values: f32.
            mask: where.
            random: the number of each element and a seed; without them what is rounded at random goes to the nearest.
        """
        rounded, codes = split_params(xp, self._kind, values, random)
        new = {"params": jnp.where(mask, rounded, self._params)}
        if codes is not None:
            new[self._name] = xp.words(jnp.where(mask, codes, self._codes).astype(np.uint16))
        return new

    def rounded(self, mask: Array) -> dict[str, Array]:
        """Return the bindings with the parameters rounded to the nearest, but for vectors of bfloat16."""
        digits = as_type(self._params, np.uint32) & 0xFFFF
        is_rounded = (digits.reshape(-1, 4) != 0).any(axis=1, keepdims=True)
        changes = jnp.broadcast_to(is_rounded, (is_rounded.size, 4)).reshape(self._params.shape)
        return self.stored(self.load(), mask & changes)


def largest_of(bound: Mapping[str, Any], name: str) -> Any:
    """Return the largest magnitudes of a slot's blocks, if it is stored in 8 bits."""
    return bound.get(slot_storage.largest_name(name))
