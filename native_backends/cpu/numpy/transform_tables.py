"""The tables of gradient transforms that a rule's kernels are bound to, in NumPy; see `wgsl.transform_lookup`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ....runtime.rule_kernels import RuleKernel
from ....wgsl import shell, transform_lookup

__all__ = ["TransformTables"]

Array = np.ndarray[Any, Any]


class TransformTables:
    """The tables of transforms that a kernel is bound to.

    Args:
        kernel: of a rule with transforms.
        bound: arrays of bytes by name of the binding.
        functions: of the kernel, as Python.
        columns: those of `tensor_scalars` that are the transforms': `on`, then all members.
    """

    def __init__(
        self, kernel: RuleKernel, bound: Mapping[str, Array], functions: Mapping[str, Any], columns: Array
    ) -> None:
        self.rule = kernel.rule
        self.module = kernel.map_module
        self.bound = bound
        self.functions = functions
        self.on = columns[:, 0]
        self.words = columns[:, 1:]
        self.gathers = kernel.rule.gathers
        self.kept = bound["kept"].view(np.float32) if "kept" in bound else None
        if "block_entries" in bound:
            self.block_entries = bound["block_entries"].view(np.uint32).reshape(-1, transform_lookup.BLOCK_ENTRY_WORDS)

    def struct(self, words: Array) -> Any:
        """Return the struct Transforms of a row of words, or of a table of them."""
        columns = iter(np.moveaxis(words, -1, 0))
        members = iter(self.rule.transforms)
        values = [[_as(next(columns), next(members).type) for _ in range(stage.members)] for stage in self.rule.stages]
        names = shell.struct_of(self.module, "Transforms").members
        return self.functions["Transforms"](
            *(self.functions[str(name.type)](*value) for name, value in zip(names, values, strict=True))
        )

    @staticmethod
    def columns_of(struct: Any, count: int) -> Array:
        """Return a table of words from a struct Transforms of arrays."""
        values = [value for member in struct for value in member]
        return np.stack([_words(np.broadcast_to(value, count)) for value in values], axis=1)

    def takes_part(self, on: Any) -> Any:
        """Return whether transforms apply to the tensors with this `on`."""
        return on != 0 if self.gathers else (on & 1) != 0

    def call(self, function: str, tensor: int, part: slice, grad: Array, t: Any = None, on: Any = None) -> Any:
        """Return the result of a function of the transforms over some elements of a tensor."""
        return self.functions[function](*self._arguments(function, tensor, part, grad, t, on))

    def _arguments(self, function: str, tensor: int, part: slice, grad: Array, t: Any, on: Any) -> Iterator[Any]:
        for name in transform_lookup.parameters_of(self.module, function):
            match name:
                case "grad":
                    yield grad
                case "param":
                    yield self.bound["params"].view(np.float32)[part]
                case "kept":
                    assert self.kept is not None
                    yield self.kept[part]
                case "tensor":
                    yield np.uint32(tensor)
                case "t":
                    yield self.struct(self.words[tensor]) if t is None else t
                case "on":
                    yield self.on[tensor] if on is None else on
                case "index":
                    yield self._index(part)
                case _:
                    block = part.start // shell.BLOCK
                    _, first_row, row_size = self.block_entries[block]
                    rows = self.bound[f"rows{name.removeprefix('row')}"].view(np.float32)
                    yield rows[first_row + self._index(part) // row_size]

    def _index(self, part: slice) -> Array:
        first = int(self.block_entries[part.start // shell.BLOCK, 0]) * shell.BLOCK
        return np.arange(first, first + part.stop - part.start, dtype=np.uint32)

    def gradient(self, tensor: int, part: slice, raw: Array) -> Array:
        """Return the transformed gradient of some elements; `raw` is the gradient before the transforms."""
        result: Array = self.call("transform_gradient", tensor, part, raw)
        return result

    def gradient_of_rows(self, tensor: int, block: int, index: Array, param: Array, raw: Array) -> Array:
        """Return the transformed gradient of elements of a tensor of which only some rows have a gradient.

        Args:
            tensor: the number of the tensor.
            block: the first block of the tensor.
            index: the numbers of the elements in the tensor.
            param: the parameters of the elements.
            raw: their gradient before the transforms.
        """
        arguments: dict[str, Any] = {"grad": raw, "param": param, "index": index, "tensor": np.uint32(tensor)}
        arguments |= {"t": self.struct(self.words[tensor]), "on": self.on[tensor]}
        names = transform_lookup.parameters_of(self.module, "transform_gradient")
        for name in names:
            if name not in arguments:
                _, first_row, row_size = self.block_entries[block]
                rows = self.bound[f"rows{name.removeprefix('row')}"].view(np.float32)
                arguments[name] = rows[first_row + index // row_size]
        result: Array = self.functions["transform_gradient"](*(arguments[name] for name in names))
        return result

    def gather(self, tensor: int, part: slice, raw: Array, is_step: bool) -> Array | None:
        """Gather a gradient into `kept`; at a step, set it to 0 and return the transformed gradient, else None."""
        assert self.kept is not None
        gathered = np.array(self.call("gather_gradient", tensor, part, raw))
        result = self.call("finish_gradient", tensor, part, gathered) if is_step else None
        self.kept[part] = 0 if is_step else gathered
        return result

    def begin(
        self, entries: Array, partials: Callable[[], Any] | None, number: int | None, inactive: int, skip: bool
    ) -> Any:
        """Run the transforms' part of `advance` for all tensors.

        Args:
            entries: of all tensors.
            partials: gives what was measured over all tensors.
            number: of the transform that is settled here.
            inactive: is_active of a tensor without a gradient.
            skip: this call is left out.

        Returns:
            is_active of each tensor.
        """
        count = len(entries)
        self.on[:] = 0 if skip else entries[:, 1]
        if skip:
            return np.zeros(count, np.uint32)
        scale = self.bound["scaler"].view(np.float32)[0] if "scaler" in self.bound else np.float32(1)
        settings = self.struct(self.bound["transforms"].view(np.uint32))
        live = (self.on & 1).astype(np.float32)
        t = self.functions["begin_transforms"](self.struct(self.words), settings, scale, live)
        if number is not None and partials is not None:
            t = self.functions[f"settle_transform_{number}"](t, partials(), entries[:, 4].astype(np.float32))
        self.words[:] = self.columns_of(t, count)
        return np.broadcast_to(self.functions["activity"](t, self.on, np.uint32(inactive)), count)


def _as(value: Any, type_: str) -> Any:
    return value.view(np.float32) if type_ == "f32" else value


def _words(value: Array) -> Array:
    return np.ascontiguousarray(value).view(np.uint32)
