"""State and parameters in fewer bits: what `wgsl.slot_storage` and `wgsl.param_storage` do in the shaders.

Elements are seen by blocks, (blocks, BLOCK) each, or by the rows of a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..wgsl import param_storage, slot_storage
from .xla_arrays import as_type, floats, put_at
from .xla_bindings import Array
from .xla_maps import codec

__all__ = ["Params", "Slot", "halves", "joined"]


def halves(words: Array) -> Array:
    """The halves of words, lower ones first, as u32."""
    return lax.bitcast_convert_type(words, np.uint16).reshape(-1).astype(np.uint32)


def joined(parts: Array) -> Array:
    """Words of halves."""
    return lax.bitcast_convert_type(parts.astype(np.uint16).reshape(-1, 2), np.uint32)


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
        words = as_type(stored, np.uint32)
        if kind == "float32":
            codes = floats(stored)
        elif self._is_blockwise:
            codes = lax.bitcast_convert_type(words, np.uint8).reshape(-1).astype(np.uint32)
        else:
            codes = halves(words)
        self._extra = codes[shape[0] * shape[1] :]  # of a tensor with an odd number of halves
        self._codes = codes[: shape[0] * shape[1]].reshape(shape)

    def rows(self, numbers: Array) -> Slot:
        """Some of its rows, to load them."""
        found = object.__new__(Slot)
        found._kind, found._is_blockwise, found._largest = self._kind, False, None
        found._codes = jnp.take(self._codes, numbers, axis=0, mode="clip")
        return found

    def load(self) -> Array:
        """The elements as f32."""
        if self._kind == "float32":
            return self._codes
        decode = codec()[f"from_{self._kind}"]
        return decode(self._codes, self._largest) if self._is_blockwise else decode(self._codes)

    def codes_of(self, values: Array, places: Array, seed: Array, largest: Array | None = None) -> Array:
        """What stands for these values.

        Args:
            values: f32.
            places: the number of each element, for rounding at random.
            seed: of that.
            largest: magnitude of each block, for 8 bits.
        """
        functions = codec()
        if self._kind == "float32":
            return values
        if self._kind == "bfloat16":
            return functions["to_bfloat16_stochastic"](values, functions["rounding_bits"](places, seed))
        return functions[f"to_{self._kind}"](*([values] if largest is None else [values, largest]))

    def stored(self, values: Array, places: Array, seed: Array, mask: Array) -> tuple[Array, ...]:
        """The words with these values where the mask is set; for 8 bits, the largest magnitudes besides."""
        if not self._is_blockwise:
            return (self.packed(jnp.where(mask, self.codes_of(values, places, seed), self._codes)),)
        kept = jnp.where(mask, values, np.float32(0))
        largest = jnp.abs(kept).max(axis=1, keepdims=True)
        codes = jnp.where(mask, self.codes_of(kept, places, seed, largest), self._codes)
        words = lax.bitcast_convert_type(codes.astype(np.uint8).reshape(-1, 4), np.uint32)
        return words, jnp.where(mask.any(axis=1, keepdims=True), largest, self._largest).reshape(-1)

    def with_rows(self, numbers: Array, codes: Array, changes: Array) -> Array:
        """The words with the codes of some rows, where these change."""
        return self.packed(put_at(self._codes, numbers, codes, changes))

    def packed(self, codes: Array) -> Array:
        """The words that hold these codes; not for 8 bits."""
        flat = jnp.concatenate([codes.reshape(-1), self._extra]) if self._extra.size else codes.reshape(-1)
        return flat if self._kind == "float32" else joined(flat)


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
        has_beside = self._name in bound
        self._beside = halves(as_type(bound[self._name], np.uint32)).reshape(shape) if has_beside else None

    def load(self) -> Array:
        """What is updated, as f32."""
        if self._beside is None:
            return self._params
        return codec()["join_halves" if self._kind == "master" else "add_cut_off"](self._params, self._beside)

    def stored(self, values: Array, mask: Array, random: tuple[Array, Array] | None = None) -> dict[str, Array]:
        """The bindings with these values where the mask is set.

        Args:
            values: f32.
            mask: where.
            random: the number of each element and a seed; without them what is rounded at random goes to the nearest.
        """
        functions = codec()
        rounded, beside = values, None
        if self._kind == "master":
            rounded, beside = functions["upper_half"](values), functions["lower_half"](values)
        elif self._kind == "stochastic" and random is not None:
            bits = functions["rounding_bits"](*random)
            rounded = functions["from_bfloat16"](functions["to_bfloat16_stochastic"](values, bits))
        elif self._kind:
            rounded = functions["from_bfloat16"](functions["to_bfloat16"](values))
        if self._kind == "kahan":
            beside = functions["to_bfloat16"](values - rounded)
        new = {"params": jnp.where(mask, rounded, self._params)}
        if beside is not None:
            new[self._name] = joined(jnp.where(mask, beside, self._beside))
        return new

    def rounded(self, mask: Array) -> dict[str, Array]:
        """The bindings with the parameters rounded to the nearest, but for vectors of bfloat16."""
        digits = as_type(self._params, np.uint32) & 0xFFFF
        is_rounded = (digits.reshape(-1, 4) != 0).any(axis=1, keepdims=True)
        changes = jnp.broadcast_to(is_rounded, (is_rounded.size, 4)).reshape(self._params.shape)
        return self.stored(self.load(), mask & changes)


def largest_of(bound: Mapping[str, Any], name: str) -> Any:
    """The largest magnitudes of a slot's blocks, if it is stored in 8 bits."""
    return bound.get(slot_storage.largest_name(name))
