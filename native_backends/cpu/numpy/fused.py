"""Fused kernels in NumPy: the functions one after the other, over parts that stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.fused_kernels import FusedKernel, FusedMapKernel
from ....runtime.kernels import Binding
from ....wgsl.fused_shell import Argument, Fused
from ...arrays.numpy_arrays import functions_of, strided
from .forms import replacement_of
from .library import Array, Parameters

__all__ = ["bind_fused", "bind_fused_map", "only_joins"]

_CHUNK = 1 << 15
_DTYPES: dict[str, Any] = {"f32": np.float32, "i32": np.int32, "u32": np.uint32}


class _Steps:
    """The functions of a fused kernel, over arrays of one shape."""

    def __init__(
        self, kernel: FusedMapKernel | FusedKernel, bound: Mapping[str, Array], values: Parameters, size: int
    ) -> None:
        fused: Fused = kernel.fused
        self.functions = functions_of(kernel)
        self.fused = fused
        self.shape = tuple(values[f"dim{axis}"] for axis in range(fused.rank)) or (size,)
        self.scalars = [_DTYPES[type_](values[f"s{number}"]) for number, type_ in enumerate(fused.scalar_types)]
        self.tensors = [
            self._strided(bound[f"x{number}_values"].view(_DTYPES[type_]), number, values)
            for number, type_ in enumerate(fused.tensor_types)
        ]

    def _strided(self, memory: Array, number: int, values: Parameters) -> Array:
        if self.fused.flat[number]:
            return memory[: math.prod(self.shape)].reshape(self.shape)
        strides = [values[f"x{number}_stride{axis}"] for axis in range(self.fused.rank)]
        return strided(memory, values[f"x{number}_start"], self.shape, strides)

    def parts(self) -> Iterator[slice]:
        """Parts along the first axis, of so many elements that they stay in the cache."""
        rows = max(1, _CHUNK // max(1, math.prod(self.shape[1:])))
        return (slice(first, first + rows) for first in range(0, self.shape[0], rows))

    def run(self, part: slice, value: Array | None, old: Sequence[Array]) -> list[Any]:
        """Compute the steps for a part of the elements, and return the values of the outputs there.

        Args:
            part: the range along the first axis.
            value: the result of the kernel with the hook, if there is any.
            old: the outputs before.
        """
        results: list[Any] = []

        def value_of(argument: Argument) -> Any:
            kind, number = argument
            match kind:
                case "tensor":
                    return self.tensors[number][part]
                case "scalar":
                    return self.scalars[number]
                case "step":
                    return results[number]
                case "old":
                    return old[number][part]
                case "value":
                    assert value is not None
                    return value[part]
            row_shape = self.shape[1:]
            first, end = (row * math.prod(row_shape) for row in (part.start, min(part.stop, self.shape[0])))
            return np.arange(first, end, dtype=np.uint32).reshape(-1, *row_shape)

        for step in self.fused.steps:
            result = self.functions[step.function](*(value_of(argument) for argument in step.arguments))
            results.append(np.asarray(result).astype(np.uint32) if step.returns_bool else result)
        return [value_of(output) for output in self.fused.outputs]


def _named(bindings: Sequence[Binding], arrays: Sequence[Array]) -> dict[str, Array]:
    return {binding.name: array for binding, array in zip(bindings, arrays, strict=True)}


def only_joins(kernel: FusedMapKernel) -> bool:
    """Return whether the kernel does nothing but join tensors, which is faster by copies."""
    fused = kernel.fused
    last = ("step", len(fused.steps) - 1)
    is_join = all(step.file == "joined" for step in fused.steps)
    return is_join and fused.rank > 0 and fused.outputs == (last,) and not any(fused.flat)


def _copies(steps: _Steps, output: Array) -> list[tuple[Array, Array]]:
    """Return each part of the output that is a copy, and the part of a tensor that it copies.

    Returns:
        [] if a join is not along an axis of the fused shape.
    """
    shape, copies = steps.shape, list[tuple[Array, Array]]()

    def fill(kind: str, number: int, part: tuple[slice, ...]) -> bool:
        if kind != "step":
            copies.append((output[part], steps.tensors[number][part].view(output.dtype)))
            return True
        _, first, second, *scalars = steps.fused.steps[number].arguments
        length, end_of_first = (int(steps.scalars[scalar]) for _, scalar in scalars)
        for axis, size in enumerate(shape):
            inner = math.prod(shape[axis + 1 :])
            if size > 1 and size * inner == length and end_of_first % inner == 0:
                start, stop, _ = part[axis].indices(size)
                end = end_of_first // inner
                sides = (first, slice(start, min(stop, end))), (second, slice(max(start, end), stop))
                return all(
                    fill(*argument, (*part[:axis], side, *part[axis + 1 :]))
                    for argument, side in sides
                    if side.start < side.stop
                )
        return False

    return copies if fill(*steps.fused.outputs[0], (slice(None),) * len(shape)) else []


def bind_fused_map(kernel: FusedMapKernel, arrays: Sequence[Array], values: Parameters) -> Callable[[], None]:
    """A call that runs map functions alone."""
    bound = _named(kernel.bindings, arrays)
    steps = _Steps(kernel, bound, values, values["size"])
    types = kernel.fused.output_types
    outputs = [
        bound[f"y{number}_values"].view(_DTYPES[type_])[: values["size"]].reshape(steps.shape)
        for number, type_ in enumerate(types)
    ]
    copies = _copies(steps, outputs[0].view(np.uint32)) if only_joins(kernel) else []
    if not copies:
        return lambda: _store(steps, None, outputs)

    def copy() -> None:
        for target, source in copies:
            target[...] = source

    return copy


def _store(steps: _Steps, value: Array | None, outputs: Sequence[Array]) -> None:
    for part in steps.parts():
        for output, result in zip(outputs, steps.run(part, value, outputs), strict=True):
            output[part] = result


def bind_fused(kernel: FusedKernel, arrays: Sequence[Array], values: Parameters) -> Callable[[], None]:
    """A call that runs a kernel with map functions before or after it."""
    bound = _named(kernel.bindings, arrays)
    replacement = replacement_of(kernel.base)
    names = [binding.name for binding in kernel.base.bindings]
    hook = kernel.hook
    if hook.function == "loaded":
        steps = _Steps(kernel, bound, values, kernel.base.elements(values))

        def run_after() -> None:
            loaded = np.empty(steps.shape, np.float32)
            for part in steps.parts():
                loaded[part] = steps.run(part, None, ())[0]
            made = {**bound, hook.binding: loaded.reshape(-1).view(np.uint8)}
            replacement(values, *(made[name] for name in names))

        return run_after
    result = bound[hook.binding]
    steps = _Steps(kernel, bound, values, result.size // 4)
    types = kernel.fused.output_types[1:]
    others = [bound[f"y{number}_values"].view(_DTYPES[type_]) for number, type_ in enumerate(types, 1)]
    first = result.view(_DTYPES[kernel.fused.output_types[0]])
    outputs = [array[: math.prod(steps.shape)].reshape(steps.shape) for array in (first, *others)]

    def run_before() -> None:
        stored = np.empty(result.size, np.uint8)
        made = {**bound, hook.binding: stored}
        replacement(values, *(made[name] for name in names))
        _store(steps, stored.view(np.float32).reshape(steps.shape), outputs)

    return run_before
