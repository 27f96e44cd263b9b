"""Maps: their functions one after the other, which XLA puts into one loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...kernel import INDEX
from ...lower.arrays import lowered
from ...lower.maps import VALUE, binding_of, words_of_spans
from ...runtime.map_kernels import FusedKernel, MapKernel
from ...runtime.spans import spans_of
from ...wgsl.jax_dialect import JAX
from ..arrays import jax_arrays
from ..arrays.jax_arrays import as_type, put, strided, with_part
from ..arrays.tables import Placed, Table
from .bindings import DTYPES, Array

__all__ = ["fused", "lower_map"]

Values = Mapping[str, Any]


def lower_map(kernel: MapKernel, values: Values, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the new contents of the arrays that a map writes."""
    bound = {binding.name: array for binding, array in zip(kernel.bindings, arrays, strict=True)}
    return tuple(_computed(kernel, bound, values, values["size"]).values())


def fused(
    kernel: FusedKernel, values: Values, arrays: Sequence[Array], replacement: Callable[..., tuple[Array, ...]]
) -> tuple[Array, ...]:
    """Return the new contents of what a kernel with a map before or after it writes.

    `replacement` takes the kernel's place.
    """
    bound = {binding.name: array for binding, array in zip(kernel.bindings, arrays, strict=True)}
    hook, result = kernel.hook, binding_of(kernel.form.writes[0].array)
    if hook.function == "loaded":
        size = kernel.base.elements(values)
        bound[result] = jnp.zeros(size, np.float32)
        bound[hook.binding] = _computed(kernel, bound, values, size)[result]
        new = _replaced(kernel, values, bound, replacement)
    else:
        new = _replaced(kernel, values, bound, replacement)
        named = {**bound, binding_of(VALUE): new[hook.binding], result: bound[hook.binding]}
        results = _computed(kernel, named, values, bound[hook.binding].size)
        new |= {hook.binding if name == result else name: array for name, array in results.items()}
    return tuple(new[binding.name] for binding in kernel.bindings if binding.writes)


def _replaced(
    kernel: FusedKernel, values: Values, bound: Mapping[str, Array], replacement: Callable[..., tuple[Array, ...]]
) -> dict[str, Array]:
    """Return the new contents of what the kernel with the hook writes."""
    bindings = kernel.base.bindings
    results = replacement(values, *(bound[binding.name] for binding in bindings))
    return dict(zip((binding.name for binding in bindings if binding.writes), results, strict=True))


def _computed(
    kernel: MapKernel | FusedKernel, bound: Mapping[str, Array], values: Values, size: int
) -> dict[str, Array]:
    """Return the new contents of the arrays that the form writes, by binding."""
    form, places = kernel.form, kernel.places
    shape = tuple(values[f"dim{axis}"] for axis in range(places.rank)) or (size,)
    spans = spans_of(places, (values[name] for name in words_of_spans(places)))
    operands: list[Any] = []
    for read in form.reads:
        name, vector = read.name, as_type(bound[binding_of(read.array or read.name)], DTYPES[read.type])
        if name in places.strided:
            strides = tuple(values[f"{name}_stride{axis}"] for axis in range(places.rank))
            start = values[f"{name}_start"]
            if name in form.tables:
                step, length = values[f"{name}_step"], values[f"{name}_length"]
                operands.append(Table(jax_arrays, vector, start, shape, strides, step, length))
            elif name in spans:
                operands.append(Placed(jax_arrays, vector, start, shape, strides, spans[name]))
            else:
                operands.append(strided(vector, start, shape, strides, broadcast_axes=places.rank))
        else:
            operands.append(vector[: math.prod(shape)].reshape(shape))
    numbers = [jnp.asarray(values[name], DTYPES[type_]) for name, type_ in form.numbers.items()]
    index = lax.iota(np.uint32, math.prod(shape)).reshape(shape) if INDEX in form.used else None
    results = lowered(form, JAX).call(index, *operands, *numbers)
    new = {}
    for write, result in zip(form.writes, results, strict=True):
        name, binding = write.array, binding_of(write.array)
        old = as_type(bound[binding], DTYPES[write.type])
        if name in places.strided:
            elements = jnp.broadcast_to(jnp.asarray(result, old.dtype), shape)
            strides = tuple(values[f"{name}_stride{axis}"] for axis in range(places.rank))
            new[binding] = with_part(old, values[f"{name}_start"], elements, strides)
        else:
            new[binding] = _put(old, result, shape)
    return new


def _put(old: Array, result: Any, shape: tuple[int, ...]) -> Array:
    """Return a vector with the elements of a result, or one number for all, at its beginning."""
    return put(old, jnp.broadcast_to(jnp.asarray(result, old.dtype), shape))
