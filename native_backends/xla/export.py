"""A recorded program as an artifact of `jax.export`: a function of its inputs that any JAX loads and runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..arrays.jax_arrays import as_type, codes, put, words
from .bindings import Array
from .commands import Copied, Memory, Run
from .programs import program_function

__all__ = ["Exported", "export"]


@dataclass(frozen=True)
class _Part:
    """A tensor in a buffer: its first byte there, its shape and its dtype."""

    handle: Memory
    first: int
    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def of(cls, tensor: Any) -> _Part:
        """Return the part of a buffer that `tensor` occupies; it has a view, a shape and a dtype."""
        return cls(tensor.view.buffer.handle, tensor.view.offset, tensor.shape, jnp.dtype(tensor.dtype.name))

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)


class Exported(NamedTuple):
    """A program without the device that it was recorded on.

    Attributes:
        artifact: what `jax.export.deserialize` takes: a function of (state, *inputs) that gives (state, outputs).
        state: the buffers that outlive a call, as vectors of uint32, with what they hold now.
        numbers: of the buffers in the state.
    """

    artifact: bytes
    state: list[np.ndarray[Any, Any]]
    numbers: dict[Memory, int]


def export(
    words_of: Callable[[Memory], Any],
    commands: Sequence[Run | Copied],
    scratch: Collection[Memory],
    inputs: Sequence[Any],
    outputs: Any,
    platforms: Sequence[str],
) -> Exported:
    """A program as a function of its inputs and of what it finds in memory.

    Args:
        words_of: returns the array of a handle.
        commands: of the program.
        scratch: the buffers that hold nothing from one replay to the next.
        inputs: the tensors that the arguments of a replay are copied to.
        outputs: those that hold its results, in any nesting of tuples, lists and dicts.
        platforms: those that it is to run on.
    """
    program, handles, count = program_function(commands)
    parts, results = [_Part.of(tensor) for tensor in inputs], jax.tree.map(_Part.of, outputs)
    replaced = {part.handle for part in parts}
    every = dict.fromkeys([*handles, *replaced, *(part.handle for part in jax.tree.leaves(results))])
    kept = [handle for handle in every if handle not in replaced and handle not in scratch]

    def step(state: Sequence[Array], *arguments: Array) -> tuple[tuple[Array, ...], Any]:
        held = {handle: jnp.zeros(handle.count, np.uint32) for handle in every if handle not in kept}
        held |= dict(zip(kept, state, strict=True))
        for part, value in zip(parts, arguments, strict=True):
            held[part.handle] = put(held[part.handle], _encoded(value), part.first // 4)
        words = [held[handle] for handle in handles]
        held |= dict(zip(handles, program(words[:count], words[count:]), strict=False))
        return tuple(held[handle] for handle in kept), jax.tree.map(
            lambda part: _decoded(held[part.handle], part), results
        )

    shapes = tuple(jax.ShapeDtypeStruct((handle.count,), np.uint32) for handle in kept)
    arguments = [jax.ShapeDtypeStruct(part.shape, part.dtype) for part in parts]
    exported = jax.export.export(jax.jit(step, donate_argnums=(0,)), platforms=tuple(platforms))(shapes, *arguments)
    numbers = {handle: number for number, handle in enumerate(kept)}
    return Exported(bytes(exported.serialize()), [np.array(words_of(handle)) for handle in kept], numbers)


def _encoded(value: Array) -> Array:
    """The elements of a tensor as words, in order."""
    flat = value.reshape(-1)
    if flat.dtype == np.bool_:
        return flat.astype(np.uint32)
    if flat.dtype.itemsize == 2:
        return words(jnp.pad(lax.bitcast_convert_type(flat, np.uint16), (0, flat.size % 2)))
    return as_type(flat, np.uint32)


def _decoded(words: Array, part: _Part) -> Array:
    """A tensor from the words of its buffer."""
    per_word = 2 if part.dtype.itemsize == 2 else 1
    own = words[part.first // 4 :][: -(-part.size // per_word)]
    if part.dtype == np.bool_:
        own = own != 0
    elif per_word == 2:
        own = lax.bitcast_convert_type(codes(own, 16)[: part.size], part.dtype)
    else:
        own = as_type(own, part.dtype)
    return own.reshape(part.shape)
