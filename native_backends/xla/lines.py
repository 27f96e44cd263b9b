"""How elements of an arena find the lines that they lie in; see `wgsl.line_lookup`.

Shapes of tensors are a table on the device, so every element finds its lines by arithmetic, as in the shaders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...runtime.rule_kernels import RuleKernel
from ...wgsl import line_lookup, rule_shell
from ..arrays.jax_arrays import floats, words
from .bindings import Array

__all__ = ["KINDS", "Lines", "Shape"]

KINDS = tuple(line_lookup.LINE_STRUCTS)


class Shape:
    """Rows of the table of shapes, each member of which has the shape of the numbers of tensors that ask.

    The members are those of Shape in WGSL; here all of an arena is seen at once.
    """

    def __init__(self, rows: Array) -> None:
        self.first, self.matrices, self.rows, self.columns, self.lines, self.partials = (
            rows[..., number] for number in range(6)
        )
        self.log_rows, self.log_columns, self.turns, self.is_matrix = (rows[..., number] for number in range(6, 10))

    @property
    def size(self) -> Array:
        """Elements."""
        return self.matrices * self.rows * self.columns

    def count(self, kind: str) -> Array:
        """How many lines of a kind there are."""
        return {"row": self.matrices * self.rows, "column": self.matrices * self.columns, "matrix": self.matrices}[kind]

    def partials_of(self, kind: str) -> Array:
        """Where the partials of a kind begin."""
        strips = ((self.columns - 1) >> self.log_columns) + 1
        chunks = ((self.rows - 1) >> self.log_rows) + 1
        tiles = {"row": strips, "column": chunks}
        first = self.partials
        for other in KINDS[: KINDS.index(kind)]:
            first = first + self.turns * tiles[other] * self.count(other)
        return first

    def lines_at(self, index: Array) -> dict[str, Array]:
        """The number of the line of each kind that elements of the tensor lie in."""
        columns = jnp.maximum(self.columns, 1)
        row = index // columns
        matrix = row // jnp.maximum(self.rows, 1)
        return {"row": row, "column": matrix * columns + (index - row * columns), "matrix": matrix}


class Lines:
    """The tables of `line_lookup` that a kernel is bound to."""

    def __init__(self, kernel: RuleKernel, bound: Mapping[str, Array], functions: Mapping[str, Any]) -> None:
        """Take the tables of a kernel, by name, and its functions."""
        module = kernel.map_module
        self.functions = functions
        self.members = line_lookup.line_members(module)
        self.state = floats(bound["lines"]) if "lines" in bound else None
        self.table = words(bound["shapes"]).reshape(-1, line_lookup.SHAPE_WORDS)
        self.are_used = rule_shell.has_function(module, kernel.part) and line_lookup.looks_up(module, kernel.part)

    def shape(self, tensor: Array) -> Shape:
        """Return the shapes of tensors, by number."""
        return Shape(jnp.take(self.table, tensor, axis=0, mode="clip"))

    def places(self, shape: Shape, kind: str, line: Array) -> list[Array]:
        """Where the members of the state of lines lie."""
        first = shape.lines
        for other, members in self.members.items():
            count = shape.count(other)
            if other == kind:
                return [first + np.uint32(number) * count + line for number in range(len(members))]
            first = first + np.uint32(len(members)) * count
        return []

    def load(self, shape: Shape, kind: str, line: Array) -> Any:
        """The state of lines, as the struct of their kind."""
        assert self.state is not None
        values = [jnp.take(self.state, place, mode="clip") for place in self.places(shape, kind, line)]
        struct = line_lookup.LINE_STRUCTS[kind]
        return self.functions[struct](*values) if struct in self.functions else None

    def of_elements(self, tensor: Array, places: Array) -> dict[str, Any]:
        """Return a function's arguments that depend on lines, by name.

        Args:
            tensor: the number of each element's tensor, of shape (blocks, 1).
            places: the number of each element in the arena, of shape (blocks, BLOCK).
        """
        if not self.are_used:
            return {}
        shape = self.shape(tensor)
        lines = shape.lines_at(places - shape.first)
        values = {
            kind: self.load(shape, kind, lines[kind])
            for kind in self.members
            if line_lookup.LINE_STRUCTS[kind] in self.functions
        }
        return {**values, "is_matrix": shape.is_matrix != 0}
