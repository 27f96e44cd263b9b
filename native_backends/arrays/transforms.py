"""The tables of gradient transforms in arrays, for NumPy and JAX; see `wgsl.transform_lookup`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...runtime.rule_kernels import AdvanceKernel, RuleKernel
from ...wgsl import shell
from . import Array

__all__ = ["BINDINGS", "RowsOfTensors", "Transforms", "binding_of_rows", "runs_of_rows", "values_of"]


BINDINGS = {"grad": "grads", "param": "params", "kept": "kept"}
"""The bindings of those parameters of transforms' functions that are elements of the arena."""


def binding_of_rows(name: str) -> str:
    """Return the binding of a parameter that is the result of a transform for each row, `rowN`."""
    return f"rows{name.removeprefix('row')}"


class Transforms:
    """The tables of transforms that a kernel is bound to."""

    def __init__(self, xp: Any, kernel: RuleKernel, functions: Mapping[str, Any], bound: Mapping[str, Array]) -> None:
        self._xp = xp
        self._kernel = kernel
        self._functions = functions
        self._bound = bound

    def struct(self, words: Sequence[Any]) -> Any:
        """Return the struct Transforms of its members as words."""
        rule, functions, remaining = self._kernel.rule, self._functions, iter(words)
        transforms = iter(rule.transforms)
        values = [
            [self._as(next(remaining), next(transforms).type) for _ in range(stage.members)] for stage in rule.stages
        ]
        stages = shell.struct_of(self._kernel.map_module, "Transforms").members
        pairs = zip(stages, values, strict=True)
        return functions["Transforms"](*(functions[str(stage.type)](*value) for stage, value in pairs))

    def _as(self, words: Any, type_: str) -> Any:
        return self._xp.floats(words) if type_ == "f32" else words

    def takes_part(self, on: Any) -> Any:
        """Return whether transforms apply to the tensors with this `on`."""
        return on != 0 if self._kernel.rule.gathers else (on & 1) != 0

    def at_begin(self, words: Sequence[Any], on: Any) -> Any:
        """Return the struct Transforms at the beginning of a call, of its members as words and the tensors' `on`."""
        xp, bound = self._xp, self._bound
        scale = xp.floats(bound["scaler"])[0] if "scaler" in bound else np.float32(1)
        settings = self.struct(list(xp.words(bound["transforms"])))
        live = (on & 1).astype(np.float32)
        return self._functions["begin_transforms"](self.struct(words), settings, scale, live)

    def begin(
        self, entries: Array, words: Sequence[Any], measured: Mapping[str, Any], skip: Any
    ) -> tuple[Any, Any, list[Any]]:
        """Return the transforms' part of `advance` for all tensors: is_active, `on`, and the members of Transforms.

        Args:
            entries: the table of tensors.
            words: the members of Transforms until now.
            measured: what was measured over all tensors for the first transform.
            skip: this call is left out; None for never.
        """
        xp, kernel, functions = self._xp, self._kernel, self._functions
        assert isinstance(kernel, AdvanceKernel)
        on = entries[:, 1]
        on = on if skip is None else xp.where(skip, np.uint32(0), on)
        t = self.at_begin(words, on)
        if kernel.settles:
            size = entries[:, 4].astype(np.float32)
            totals = functions[f"Partial{kernel.measured}"](*measured.values())
            t = functions[f"settle_transform_{kernel.measured}"](t, totals, size)
        inactive = np.uint32(2 if kernel.rule.over_all else 0)
        is_active, new = functions["activity"](t, on, inactive), values_of(t)
        if skip is not None:
            is_active = xp.where(skip, np.uint32(0), is_active)
            new = [xp.where(skip, old, xp.words(value)) for value, old in zip(new, words, strict=True)]
        return xp.broadcast_to(is_active, len(on)), on, new


def values_of(t: Any) -> list[Any]:
    """Return the values of a struct Transforms."""
    return [value for member in t for value in member]


class RowsOfTensors(NamedTuple):
    """Rows of adjacent tensors with as many rows of one length; or some of the rows of one tensor.

    Attributes:
        tensors: their numbers.
        number: of the first row among all rows.
        first: the first element.
        rows: of each tensor.
        size: elements of a row.
        begin: the number of the first row in its tensor.
    """

    tensors: tuple[int, ...]
    number: int
    first: int
    rows: int
    size: int
    begin: int = 0

    @property
    def padded(self) -> int:
        """Elements from one tensor to the next."""
        return -(-self.rows * self.size // shell.BLOCK) * shell.BLOCK

    def follows(self, other: RowsOfTensors) -> bool:
        """Return whether the first tensor here comes after the last of others, and all are alike."""
        count = len(other.tensors)
        return (self.number, self.first, self.rows, self.size) == (
            other.number + count * other.rows,
            other.first + count * other.padded,
            other.rows,
            other.size,
        )

    def of(self, vector: Array) -> Array:
        """Return the elements of a vector that is laid out like the arena, (tensors, rows, size)."""
        count, size = len(self.tensors), self.rows * self.size
        if count == 1:
            return vector[self.first : self.first + size].reshape(1, self.rows, self.size)
        tensors = vector[self.first : self.first + count * self.padded].reshape(count, self.padded)
        return tensors[:, :size].reshape(count, self.rows, self.size)


def runs_of_rows(entries: Array) -> Iterator[RowsOfTensors]:
    """Yield the rows of the table `row_entries`: all those of each tensor that has elements, from its first row on."""
    begins = np.flatnonzero(np.diff(entries[:, 0].astype(np.int64), prepend=-1))
    run: RowsOfTensors | None = None
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(entries)], strict=True):
        tensor, first, _, size = entries[begin].tolist()
        rows = RowsOfTensors((tensor,), begin, first, end - begin, size)
        if run is not None and rows.follows(run):
            run = run._replace(tensors=(*run.tensors, tensor))
            continue
        if run is not None:
            yield run
        run = rows
    if run is not None:
        yield run
