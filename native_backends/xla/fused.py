"""Fused kernels: the functions one after the other, which XLA puts into one loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...runtime.fused_kernels import FusedKernel, FusedMapKernel
from ...wgsl.fused_shell import Argument, Fused, parameters_of as own_parameters
from ..arrays.jax_arrays import as_type, functions_of, put, strided
from .bindings import DTYPES, Array

__all__ = ["fused", "fused_map", "own_parameters"]

Values = Mapping[str, Any]


class _Steps:
    """The functions of a fused kernel, over arrays of one shape."""

    def __init__(
        self, kernel: FusedMapKernel | FusedKernel, bound: Mapping[str, Array], values: Values, size: int
    ) -> None:
        self.fused: Fused = kernel.fused
        self.functions = functions_of(kernel)
        self.shape = tuple(values[f"dim{axis}"] for axis in range(self.fused.rank)) or (size,)
        types = enumerate(self.fused.scalar_types)
        self.scalars = [jnp.asarray(values[f"s{number}"], DTYPES[type_]) for number, type_ in types]
        self.tensors = [
            self._strided(as_type(bound[f"x{number}_values"], DTYPES[type_]), number, values)
            for number, type_ in enumerate(self.fused.tensor_types)
        ]

    def _strided(self, vector: Array, number: int, values: Values) -> Array:
        if self.fused.flat[number]:
            return vector[: math.prod(self.shape)].reshape(self.shape)
        strides = [values[f"x{number}_stride{axis}"] for axis in range(self.fused.rank)]
        return strided(vector, values[f"x{number}_start"], self.shape, strides)

    def run(self, value: Array | None, old: Sequence[Array]) -> list[Array]:
        """Compute the steps, and return the outputs in the full shape.

        Args:
            value: the result of the kernel with the hook, if there is any.
            old: the outputs before.
        """
        results: list[Any] = []

        def value_of(argument: Argument) -> Any:
            kind, number = argument
            match kind:
                case "tensor":
                    return self.tensors[number]
                case "scalar":
                    return self.scalars[number]
                case "step":
                    return results[number]
                case "old":
                    return old[number][: math.prod(self.shape)].reshape(self.shape)
                case "value":
                    return value
            return lax.iota(np.uint32, math.prod(self.shape)).reshape(self.shape)

        for step in self.fused.steps:
            result = jnp.asarray(self.functions[step.function](*(value_of(argument) for argument in step.arguments)))
            results.append(result.astype(np.uint32) if step.returns_bool else result)
        return [jnp.broadcast_to(value_of(output), self.shape) for output in self.fused.outputs]


def _named(kernel: FusedMapKernel | FusedKernel, arrays: Sequence[Array]) -> dict[str, Array]:
    return {binding.name: array for binding, array in zip(kernel.bindings, arrays, strict=True)}


def fused_map(kernel: FusedMapKernel, values: Values, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Map functions alone."""
    bound = _named(kernel, arrays)
    old = [as_type(bound[f"y{number}_values"], DTYPES[type_]) for number, type_ in enumerate(kernel.fused.output_types)]
    results = _Steps(kernel, bound, values, values["size"]).run(None, old)
    return tuple(put(before, result) for before, result in zip(old, results, strict=True))


def fused(
    kernel: FusedKernel, values: Values, arrays: Sequence[Array], replacement: Callable[..., tuple[Array, ...]]
) -> tuple[Array, ...]:
    """A kernel with map functions before or after it; `replacement` takes the kernel's place."""
    bound = _named(kernel, arrays)
    hook = kernel.hook
    if hook.function == "loaded":
        loaded = _Steps(kernel, bound, values, kernel.base.elements(values)).run(None, ())[0]
        bound[hook.binding] = loaded.reshape(-1)
        new = _computed(kernel, values, bound, replacement)
    else:
        new = _computed(kernel, values, bound, replacement)
        names = [hook.binding, *(f"y{number}_values" for number in range(1, len(kernel.fused.outputs)))]
        old = [
            as_type(bound[name], DTYPES[type_]) for name, type_ in zip(names, kernel.fused.output_types, strict=True)
        ]
        steps = _Steps(kernel, bound, values, bound[hook.binding].size)
        value = new[hook.binding][: math.prod(steps.shape)].reshape(steps.shape)
        results = zip(names, old, steps.run(value, old), strict=True)
        new |= {name: put(before, result) for name, before, result in results}
    return tuple(new[binding.name] for binding in kernel.bindings if binding.writes)


def _computed(
    kernel: FusedKernel, values: Values, bound: Mapping[str, Array], replacement: Callable[..., tuple[Array, ...]]
) -> dict[str, Array]:
    bindings = kernel.base.bindings
    results = replacement(values, *(bound[binding.name] for binding in bindings))
    return dict(zip((binding.name for binding in bindings if binding.writes), results, strict=True))
