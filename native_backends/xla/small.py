"""Kernels over few elements, compiled once for all shapes: each element of the result finds what it is made of.

Compiling takes a tenth of a second, a thousand elements a few microseconds. So the shapes and strides of small launches
are arguments of the compiled function like any other parameters, and the result is computed for every word of its
buffer. Programs, and launches over more elements, are compiled for their shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...kernel import INDEX
from ...lower.arrays import lowered
from ...lower.maps import Places
from ...runtime.kernels import Kernel, SourceKernel
from ...runtime.map_kernels import MapKernel
from ...wgsl.jax_dialect import JAX
from ..arrays.jax_arrays import as_type
from .bindings import DTYPES, Array

__all__ = ["reach_of", "small"]

_LARGEST = 1 << 12
"""Words of the largest buffer of a result."""

_MOST = 1 << 16
"""The most words of a result's buffer, times the number of terms of each of its elements."""

Values = Mapping[str, Any]


class _Elements:
    """The elements of the result, and what they are computed from.

    Args:
        arrays: for each binding all words of the buffer, the result's last.
        firsts: the first word of each binding in it.
        reach: of `reach_of`.
    """

    def __init__(self, arrays: Sequence[Array], firsts: Array, reach: int) -> None:
        self.arrays, self.firsts = arrays, firsts
        self.old = arrays[-1]
        self.index = lax.iota(np.uint32, self.old.size) - firsts[-1]  # before the first: a large number
        self.inner = lax.broadcasted_iota(np.uint32, (self.old.size, reach), 1)

    def read(self, number: int, index: Array, dtype: Any = np.uint32) -> Array:
        """Return the elements of a binding at these indices."""
        words = self.arrays[number]
        word = jnp.minimum(self.firsts[number] + index, np.uint32(words.size - 1)).astype(np.int32)
        return as_type(words.at[word].get(mode="promise_in_bounds"), dtype)


def reach_of(kernel: Kernel | None, values: Values, size: int) -> int | None:
    """Return the most terms of an element of the result, rounded up; None where shapes have to be known.

    Args:
        kernel: what to compute.
        values: its parameters.
        size: words of the largest buffer that it writes.
    """
    if size > _LARGEST:
        return None
    if isinstance(kernel, MapKernel):
        written = [write.array for write in kernel.form.writes]
        return 1 if len(written) == 1 and written[0] not in kernel.places.strided else None
    if not isinstance(kernel, SourceKernel) or kernel.name not in _SMALL:
        return None
    count = _LENGTHS.get(kernel.name)
    length = max(count(values), 1) if count else 1
    reach = 1 if length == 1 else max(8, 1 << (length - 1).bit_length())
    return reach if reach * size <= _MOST else None


def small(kernel: Kernel, p: Values, arrays: Sequence[Array], firsts: Array, size: Array, reach: int) -> Array:
    """Return the words of the buffer of the result.

    Args:
        kernel: one that has a reach.
        p: its parameters, all of them traced.
        arrays: for each binding all words of the buffer.
        firsts: the first word of each binding in it.
        size: elements of the result.
        reach: its reach.
    """
    elements = _Elements(arrays, firsts, reach)
    if isinstance(kernel, MapKernel):
        values = _map_function(kernel, p, elements)
    else:
        values = _SMALL[kernel.name](p, elements)
    return jnp.where(elements.index < size, as_type(values, np.uint32), elements.old)


def _map_function(kernel: MapKernel, p: Values, elements: _Elements) -> Array:
    form, places = kernel.form, kernel.places
    positions: list[Array] = []
    remaining = elements.index
    for axis in reversed(range(places.rank)):
        positions.insert(0, remaining % p[f"dim{axis}"] if axis else remaining)
        remaining = remaining // p[f"dim{axis}"]
    bindings, operands = iter(range(len(elements.arrays))), list[Any]()
    for read in form.reads:
        if read.array:
            operands.append(as_type(elements.old, DTYPES[read.type]))
            continue
        index = p[f"{read.name}_start"] if read.name in places.strided else elements.index
        for axis, position in enumerate(positions if read.name in places.strided else ()):
            index = index + position * p[f"{read.name}_stride{axis}"]
        load = partial(elements.read, next(bindings), dtype=DTYPES[read.type])
        if read.name in form.tables:
            operands.append(partial(_taken, load, index, p[f"{read.name}_step"], p[f"{read.name}_length"]))
        elif read.name in form.placed:
            is_there, index = _where_placed(p, places, read.name, positions, index)
            operands.append(partial(jnp.where, is_there, load(index)))
        else:
            operands.append(load(index))
    index = elements.index if INDEX in form.used else None
    (result,) = lowered(form, JAX).call(index, *operands, *(p[name] for name in form.numbers))
    return jnp.asarray(result, DTYPES[form.writes[0].type])


def _taken(load: Callable[[Array], Array], first: Array, step: Array, length: Array, at: Array, fill: Array) -> Array:
    """Return the elements of a table at places along its own axis, and `fill` where that has none."""
    return jnp.where(at < length, load(first + at * step), fill)


def _where_placed(p: Values, places: Places, name: str, indices: Sequence[Array], index: Array) -> tuple[Array, Array]:
    """Return where an array that is placed has an element, and the index of that."""
    is_there = jnp.asarray(True)
    for number, span in enumerate(dict(places.spans)[name]):
        of_span = {word: p[f"{name}_span{number}_{word}"] for word in span.words}
        position = np.uint32(0) - of_span["start"]
        for axis in span.axes:
            position = position + indices[axis] * of_span.get(f"step{axis}", np.uint32(1))
        spacing = of_span.get("spacing", np.uint32(1))
        is_there = is_there & (position < of_span["extent"]) & (position % spacing == 0)
        index = index + position // spacing * of_span["stride"]
    return is_there, index


def _matmul(p: Values, elements: _Elements) -> Array:
    column, row = elements.index % p["columns"], elements.index // p["columns"] % p["rows"]
    product = elements.index // (p["rows"] * p["columns"])
    outer, within = product // p["batch_inner"], product % p["batch_inner"]
    a = p["a_start"] + outer * p["a_outer_stride"] + within * p["a_batch_stride"] + row * p["a_row_stride"]
    b = p["b_start"] + outer * p["b_outer_stride"] + within * p["b_batch_stride"] + column * p["b_column_stride"]
    left = elements.read(0, a[:, None] + elements.inner * p["a_inner_stride"], np.float32)
    right = elements.read(1, b[:, None] + elements.inner * p["b_inner_stride"], np.float32)
    return jnp.where(elements.inner < p["inner"], left * right, np.float32(0)).sum(axis=1)


def _sum(p: Values, elements: _Elements) -> Array:
    segment = p.get("segment", p["columns"])
    segments = (p["columns"] + segment - 1) // segment
    column, row = elements.index % p["inner"], elements.index // (p["inner"] * segments)
    first = elements.index // p["inner"] % segments * segment
    at = first[:, None] + elements.inner
    is_inside = (elements.inner < segment) & (at < p["columns"])
    indices = ((row * p["columns"])[:, None] + at) * p["inner"] + column[:, None]
    return jnp.where(is_inside, elements.read(0, indices, np.float32), np.float32(0)).sum(axis=1)


_SMALL: dict[str, Callable[[Values, _Elements], Array]] = {
    "matmul": _matmul,
    "sum": _sum,
}

_LENGTHS: dict[str, Callable[[Values], int]] = {
    "matmul": lambda p: int(p["inner"]),
    "sum": lambda p: int(p.get("segment", p["columns"])),
}
"""The number of terms of which each element of a result is the sum, by kernel."""
