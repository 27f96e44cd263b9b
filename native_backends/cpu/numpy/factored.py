"""The kernels of rules that keep state per row and per column, in NumPy; see `wgsl.factored_shell`.

What is measured of a line is complete after each dispatch here, so it lies in the first of the line's partials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....runtime.factored import LineSettleKernel
from ....runtime.rule_kernels import RuleKernel
from ....wgsl import factored_shell, line_lookup, rule_shell
from ....wgsl.shell import member_names

if TYPE_CHECKING:
    from .rules import BoundRule

__all__ = ["LineTables", "bind_measure_lines", "bind_settle_lines"]

Array = np.ndarray[Any, Any]

_CHUNK = 1 << 15
_KINDS = tuple(line_lookup.LINE_STRUCTS)


class _Shape(NamedTuple):
    """The members of Shape in WGSL; here all of an arena is seen at once."""

    first: int
    matrices: int
    rows: int
    columns: int
    lines: int
    partials: int
    log_rows: int
    log_columns: int
    turns: int
    is_matrix: int

    def count(self, kind: str) -> int:
        """How many lines of a kind there are."""
        return {"row": self.matrices * self.rows, "column": self.matrices * self.columns, "matrix": self.matrices}[kind]

    def partials_of(self, kind: str) -> tuple[int, int]:
        """Where the partials of a kind begin, and how many there are of each line."""
        strips, chunks = -(-self.columns >> self.log_columns), -(-self.rows >> self.log_rows)
        tiles = {"row": strips, "column": chunks, "matrix": strips * chunks}
        first = self.partials
        for other in _KINDS[: _KINDS.index(kind)]:
            first += self.turns * tiles[other] * self.count(other)
        return first, self.turns * tiles[kind]

    def lines_of(self, start: int, stop: int) -> dict[str, Callable[[Array], Any]]:
        """For each kind of line what takes the values of elements start to stop of a tensor from those of lines."""
        columns, row, last_row = self.columns, start // self.columns, (stop - 1) // self.columns
        part = slice(start - row * columns, stop - row * columns)
        if row == last_row:
            matrix = row // self.rows
            return {
                "row": lambda values: values[row],
                "column": lambda values: values[matrix * columns :][part],
                "matrix": lambda values: values[matrix],
            }
        matrices = np.arange(row, last_row + 1) // self.rows
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

    def shape(self, tensor: int) -> _Shape:
        """Return the shape of a tensor, by number."""
        return _Shape(*self.table[tensor].tolist())

    def state(self, shape: _Shape, kind: str) -> list[Array]:
        """The members of the state of all lines of a kind."""
        first = shape.lines
        for other, members in self.members.items():
            count = shape.count(other)
            if other == kind:
                return [self.lines[first + n * count : first + (n + 1) * count] for n in range(len(members))]
            first += len(members) * count
        return []

    def of_elements(self, tensor: int, part: slice) -> dict[str, Any]:
        """Return a function's arguments that depend on lines, by name, for elements of the arena, all of `tensor`."""
        shape = self.shape(tensor)
        take = shape.lines_of(part.start - shape.first, part.stop - shape.first)
        values: dict[str, Any] = {
            kind: self.functions[line_lookup.LINE_STRUCTS[kind]](*map(take[kind], self.state(shape, kind)))
            for kind in self.members
            if line_lookup.LINE_STRUCTS[kind] in self.functions
        }
        return {**values, "is_matrix": np.bool_(shape.is_matrix)}


def _parts(shape: _Shape) -> Iterator[tuple[int, int, int]]:
    """The first row, the matrices and the rows of each of parts about as large as a chunk: whole matrices, or rows."""
    matrices = _CHUNK // (shape.rows * shape.columns)
    if matrices:
        for matrix in range(0, shape.matrices, matrices):
            yield matrix * shape.rows, min(matrices, shape.matrices - matrix), shape.rows
        return
    rows = max(1, _CHUNK // shape.columns)
    for matrix in range(shape.matrices):
        for row in range(0, shape.rows, rows):
            yield matrix * shape.rows + row, 1, min(rows, shape.rows - row)


def _tables(rule: BoundRule) -> LineTables:
    assert rule.lines is not None
    return rule.lines


def bind_measure_lines(rule: BoundRule, kernel: RuleKernel) -> Callable[[], None]:
    """`factored_shell.measure_lines`."""
    tables = _tables(rule)
    names = member_names(rule.module, "LineMeasured")
    partials = rule.bound["line_partials"].view(np.float32).reshape(-1, len(names))
    tiles = rule.bound["tiles"].view(np.uint32).reshape(-1, factored_shell.TILE_WORDS)

    def run() -> None:
        tensors = np.unique(tiles[:, 0])  # now: when this is bound, the table may still have to be written
        for tensor in tensors[rule.is_active[tensors] == 1].tolist():
            shape, shared = tables.shape(tensor), rule.of_tensor(tensor)
            totals = {kind: np.zeros((len(names), shape.count(kind))) for kind in _KINDS}
            for row, matrices, rows in _parts(shape):
                start = shape.first + row * shape.columns
                part = slice(start, start + matrices * rows * shape.columns)
                measured = rule.call(kernel.part, {**shared, **rule.of_elements(part)})
                for number, (name, one) in enumerate(zip(names, measured, strict=True)):
                    stack = np.broadcast_to(one, part.stop - part.start).reshape(matrices, rows, shape.columns)
                    _add(name, {kind: total[number] for kind, total in totals.items()}, stack, row, shape)
            for kind in _KINDS:
                first, tiled = shape.partials_of(kind)
                own = partials[first : first + tiled * shape.count(kind)].reshape(tiled, -1, len(names))
                own[:] = 0
                own[0] = totals[kind].T

    return run


def _add(name: str, totals: dict[str, Array], stack: Array, row: int, shape: _Shape) -> None:
    """Add a member of what was measured of some rows, from a row of the tensor on, to the totals of all lines."""
    matrix = row // shape.rows
    for kind, first, axes in (
        ("row", row, (2,)),
        ("column", matrix * shape.columns, (1,)),
        ("matrix", matrix, (1, 2)),
    ):
        if name.startswith(rule_shell.MAXIMUM):
            found = stack.max(axis=axes).ravel()
            total = totals[kind][first : first + found.size]
            np.maximum(total, found, out=total)
        else:
            found = stack.sum(axis=axes, dtype=np.float64).ravel()
            totals[kind][first : first + found.size] += found


def bind_settle_lines(rule: BoundRule, kernel: LineSettleKernel) -> Callable[[], None]:
    """`factored_shell.settle_lines`."""
    tables = _tables(rule)
    names = member_names(rule.module, "LineMeasured")
    partials = rule.bound["line_partials"].view(np.float32).reshape(-1, len(names))
    groups = rule.bound["groups"].view(np.uint32).reshape(-1, factored_shell.GROUP_WORDS)

    def total(name: str, values: Array) -> Array:
        is_maximum = name.startswith(rule_shell.MAXIMUM)
        found: Array = values.max(axis=0) if is_maximum else values.sum(axis=0, dtype=np.float64)
        return found

    def run() -> None:
        for tensor in np.unique(groups[:, 0]):
            if rule.is_active[tensor] != 1:
                continue
            shape = tables.shape(int(tensor))
            sizes = {"row": shape.columns, "column": shape.rows, "matrix": shape.rows * shape.columns}
            for kind, function in kernel.functions.items():
                first, tiled = shape.partials_of(kind)
                own = partials[first : first + tiled * shape.count(kind)].reshape(tiled, shape.count(kind), len(names))
                columns = [total(name, own[:, :, number]).astype(np.float32) for number, name in enumerate(names)]
                state = tables.state(shape, kind)
                values = {
                    **rule.of_tensor(int(tensor)),
                    kind: rule.struct(line_lookup.LINE_STRUCTS[kind], state),
                    "measured": rule.struct("LineMeasured", columns),
                    "size": np.float32(sizes[kind]),
                }
                for member, value in zip(state, rule.call(function, values), strict=True):
                    member[:] = value

    return run
