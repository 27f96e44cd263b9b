"""Kernels over a table of entries, in JAX: all entries at once, and the results of some left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from .xla_arrays import floats, put_strided, strided, windows, words

__all__ = ["Entries"]

Parameters = Mapping[str, Any]


class Entries(NamedTuple):
    """A table of entries, each of which belongs to a tensor.

    Attributes:
        is_active: the entries whose tensor takes part.
        rows: the words of each one's row of `tensor_scalars`.
        members: of the entries, the number of the tensor first.
    """

    is_active: Array
    rows: Array
    members: tuple[Array, ...]

    @classmethod
    def of(cls, p: Parameters, table: Array, members: int, scalars: Array) -> Entries:
        """The table, whose entries have so many members.

        A kernel without a gate asks for word 0 only, which says that the tensor is active.
        """
        columns = tuple(words(table)[: table.size // members * members].reshape(-1, members).T)
        words_of_all = words(scalars)[: scalars.size // p["row_words"] * p["row_words"]]
        rows = jnp.take(words_of_all.reshape(-1, p["row_words"]), columns[0], axis=0, mode="clip")
        return cls((rows[:, 0] == 1) & (rows[:, p.get("gate_word", 0)] != 0), rows, columns)

    def scalar(self, word: int) -> Array:
        """A member of each tensor's scalars, as float32."""
        return floats(self.rows)[:, word]

    def matrices(self, array: Array, member: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
        """(entries, *shape): what lies where a member says, with these strides."""
        if 0 in shape:
            return jnp.zeros((self.is_active.size, *shape), array.dtype)
        extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        rows = windows(array, self.members[member], extent)
        return jax.vmap(lambda row: strided(row, 0, shape, strides))(rows)

    def store(self, old: Array, member: int, values: Array, strides: Sequence[int]) -> Array:
        """The vector with these values, (entries, *shape), where a member says, of the entries that take part."""
        return put_strided(old, self.members[member], values, strides, self.is_active)
