"""Where a rule's state per row, per column and per matrix is stored, in NumPy; see `wgsl.line_lookup`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.rule_kernels import RuleKernel
from ....wgsl import line_lookup, rule_shell
from ...arrays.lines import Shape

__all__ = ["LineTables"]

Array = np.ndarray[Any, Any]


def _lines_of(shape: Shape, start: int, stop: int) -> dict[str, Callable[[Array], Any]]:
    """Return by kind of line a function from the values of all lines to those of elements start to stop of a tensor."""
    columns, row, last_row = shape.columns, start // shape.columns, (stop - 1) // shape.columns
    part = slice(start - row * columns, stop - row * columns)
    if row == last_row:
        matrix = row // shape.rows
        return {
            "row": lambda values: values[row],
            "column": lambda values: values[matrix * columns :][part],
            "matrix": lambda values: values[matrix],
        }
    matrices = np.arange(row, last_row + 1) // shape.rows
    return {
        "row": lambda values: np.repeat(values[row : last_row + 1], columns)[part],
        "column": lambda values: values.reshape(-1, columns)[matrices].ravel()[part],
        "matrix": lambda values: np.repeat(values[matrices], columns)[part],
    }


class LineTables:
    """The tables of `line_lookup` that a kernel is bound to, by name."""

    def __init__(self, kernel: RuleKernel, bound: dict[str, Array], functions: Any) -> None:
        self.members = line_lookup.line_members(kernel.map_module)
        self.functions = functions
        self.lines = bound["lines"].view(np.float32) if "lines" in bound else np.zeros(0, np.float32)
        self.table = bound["shapes"].view(np.uint32).reshape(-1, line_lookup.SHAPE_WORDS)
        module = kernel.map_module
        self.are_used = rule_shell.has_function(module, kernel.part) and line_lookup.looks_up(module, kernel.part)

    def tensor_at(self, part: slice) -> int:
        """The tensor that these elements belong to."""
        sizes = self.table[:, 1] * self.table[:, 2] * self.table[:, 3]
        return int(np.flatnonzero((self.table[:, 0] <= part.start) & (part.start < self.table[:, 0] + sizes))[0])

    def shape(self, tensor: int) -> Shape:
        """Return the shape of a tensor, by number."""
        return Shape(*self.table[tensor].tolist())

    def state(self, shape: Shape, kind: str) -> list[Array]:
        """The members of the state of all lines of a kind."""
        first, count = shape.state_of(kind, self.members), shape.count(kind)
        members = range(len(self.members.get(kind, ())))
        return [self.lines[first + number * count :][:count] for number in members]

    def of_elements(self, tensor: int, part: slice) -> dict[str, Any]:
        """Return a function's arguments that depend on lines, by name, for elements of the arena, all of `tensor`."""
        shape = self.shape(tensor)
        take = _lines_of(shape, part.start - shape.first, part.stop - shape.first)
        values: dict[str, Any] = {
            kind: self.functions[line_lookup.LINE_STRUCTS[kind]](*map(take[kind], self.state(shape, kind)))
            for kind in self.members
            if line_lookup.LINE_STRUCTS[kind] in self.functions
        }
        return {**values, "is_matrix": np.bool_(shape.is_matrix)}
