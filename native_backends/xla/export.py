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

from ..arrays.jax_arrays import as_type, codes, words
from .bindings import Array
from .commands import Copied, Run
from .memory import Memory, StackMemory
from .programs import Regions, program_function

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
        state: the memory that outlives a call, as vectors of uint32, with what it holds now.
        numbers: of each memory that has one array, in the state.
    """

    artifact: bytes
    state: list[np.ndarray[Any, Any]]
    numbers: dict[Memory | StackMemory, int]


def export(
    host_words_of: Callable[[Memory | StackMemory], Any],
    commands: Sequence[Run | Copied],
    scratch: Collection[Memory],
    inputs: Sequence[Any],
    outputs: Any,
    platforms: Sequence[str],
) -> Exported:
    """A program as a function of its inputs and of what it finds in memory.

    Args:
        host_words_of: returns the words of memory that has one array, on the processor.
        commands: of the program.
        scratch: the buffers that hold nothing from one replay to the next.
        inputs: the tensors that the arguments of a replay are copied to.
        outputs: those that hold its results, in any nesting of tuples, lists and dicts.
        platforms: those that it is to run on.
    """
    program, handles, count = program_function(commands)
    parts, results_of = [_Part.of(tensor) for tensor in inputs], jax.tree.map(_Part.of, outputs)
    replaced = {part.handle for part in parts}
    every = dict.fromkeys([*handles, *replaced, *(part.handle for part in jax.tree.leaves(results_of))])
    kept = [handle for handle in every if handle not in replaced and handle not in scratch]

    def step(state: Sequence[Array], *arguments: Array) -> tuple[tuple[Array, ...], Any]:
        held = {handle: Regions(handle.stacks, handle.zeros()) for handle in every if handle not in kept}
        vectors = iter(state)
        for handle in kept:
            arrays = [as_type(next(vectors), leaf.dtype).reshape(leaf.shape) for leaf in handle.leaves]
            held[handle] = Regions(handle.stacks, arrays if handle.stacks else arrays[0])
        for part, value in zip(parts, arguments, strict=True):
            held[part.handle].store(part.first // 4, _encoded(value))
        found = [held[handle].final() for handle in handles]
        results = program(found[:count], found[count:])
        held |= {handle: Regions(handle.stacks, result) for handle, result in zip(handles, results, strict=False)}
        new = jax.tree.leaves([held[handle].final() for handle in kept])
        return tuple(as_type(array, np.uint32).reshape(-1) for array in new), jax.tree.map(
            lambda part: _decoded(held[part.handle], part), results_of
        )

    leaves = [leaf for handle in kept for leaf in handle.leaves]
    shapes = tuple(jax.ShapeDtypeStruct((leaf.count,), np.uint32) for leaf in leaves)
    arguments = [jax.ShapeDtypeStruct(part.shape, part.dtype) for part in parts]
    exported = jax.export.export(jax.jit(step, donate_argnums=(0,)), platforms=tuple(platforms))(shapes, *arguments)
    numbers = {leaf: number for number, leaf in enumerate(leaves)}
    return Exported(bytes(exported.serialize()), [host_words_of(leaf).copy() for leaf in leaves], numbers)


def _encoded(value: Array) -> Array:
    """The elements of a tensor as words, in order."""
    flat = value.reshape(-1)
    if flat.dtype == np.bool_:
        return flat.astype(np.uint32)
    if flat.dtype.itemsize == 2:
        return words(jnp.pad(lax.bitcast_convert_type(flat, np.uint16), (0, flat.size % 2)))
    return as_type(flat, np.uint32)


def _decoded(words: Regions, part: _Part) -> Array:
    """A tensor from the words of its buffer."""
    per_word = 2 if part.dtype.itemsize == 2 else 1
    own = words.load(part.first // 4, -(-part.size // per_word))
    if part.dtype == np.bool_:
        own = as_type(own, np.uint32) != 0
    elif per_word == 2:
        own = lax.bitcast_convert_type(codes(as_type(own, np.uint32), 16)[: part.size], part.dtype)
    else:
        own = as_type(own, part.dtype)
    return own.reshape(part.shape)
