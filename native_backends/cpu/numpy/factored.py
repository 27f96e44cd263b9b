"""The kernels of rules that keep state per row and per column, in NumPy; see `wgsl.factored_shell`.

What is measured of a line is complete after each dispatch here, so it is stored in the first of the line's partials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ....runtime.factored import LineSettleKernel
from ....runtime.rule_kernels import RuleKernel
from ....wgsl import factored_shell, line_lookup, rule_shell
from ....wgsl.shell import member_names
from ...arrays.lines import KINDS, Shape
from .library import CHUNK, Array
from .line_tables import LineTables
from .rules import BoundRule

__all__ = ["bind_measure_lines", "bind_settle_lines"]


def _parts(shape: Shape) -> Iterator[tuple[int, int, int]]:
    """The first row, the matrices and the rows of each of parts about as large as a chunk: whole matrices, or rows."""
    matrices = CHUNK // (shape.rows * shape.columns)
    if matrices:
        for matrix in range(0, shape.matrices, matrices):
            yield matrix * shape.rows, min(matrices, shape.matrices - matrix), shape.rows
        return
    rows = max(1, CHUNK // shape.columns)
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
            totals = {kind: np.zeros((len(names), shape.count(kind))) for kind in KINDS}
            for row, matrices, rows in _parts(shape):
                start = shape.first + row * shape.columns
                part = slice(start, start + matrices * rows * shape.columns)
                measured = rule.call(kernel.part, {**shared, **rule.of_elements(part)})
                for number, (name, values) in enumerate(zip(names, measured, strict=True)):
                    stack = np.broadcast_to(values, part.stop - part.start).reshape(matrices, rows, shape.columns)
                    _add(name, {kind: total[number] for kind, total in totals.items()}, stack, row, shape)
            for kind in KINDS:
                first, tiled = shape.partials_of(kind)
                own = partials[first : first + tiled * shape.count(kind)].reshape(tiled, -1, len(names))
                own[:] = 0
                own[0] = totals[kind].T

    return run


def _add(name: str, totals: dict[str, Array], stack: Array, row: int, shape: Shape) -> None:
    """Add a member of what was measured of some rows, from a row of the tensor on, to the totals of all lines."""
    matrix = row // shape.rows
    for kind, first, axes in (
        ("row", row, (2,)),
        ("column", matrix * shape.columns, (1,)),
        ("matrix", matrix, (1, 2)),
    ):
        if name.startswith(rule_shell.MAXIMUM):
            reduced = stack.max(axis=axes).ravel()
            total = totals[kind][first : first + reduced.size]
            np.maximum(total, reduced, out=total)
        else:
            reduced = stack.sum(axis=axes, dtype=np.float64).ravel()
            totals[kind][first : first + reduced.size] += reduced


def bind_settle_lines(rule: BoundRule, kernel: LineSettleKernel) -> Callable[[], None]:
    """`factored_shell.settle_lines`."""
    tables = _tables(rule)
    names = member_names(rule.module, "LineMeasured")
    partials = rule.bound["line_partials"].view(np.float32).reshape(-1, len(names))
    groups = rule.bound["groups"].view(np.uint32).reshape(-1, factored_shell.GROUP_WORDS)

    def total(name: str, values: Array) -> Array:
        is_maximum = name.startswith(rule_shell.MAXIMUM)
        reduced: Array = values.max(axis=0) if is_maximum else values.sum(axis=0, dtype=np.float64)
        return reduced

    def run() -> None:
        for tensor in np.unique(groups[:, 0]):
            if rule.is_active[tensor] != 1:
                continue
            shape = tables.shape(int(tensor))
            for kind, function in kernel.functions.items():
                first, tiled = shape.partials_of(kind)
                own = partials[first : first + tiled * shape.count(kind)].reshape(tiled, shape.count(kind), len(names))
                columns = [total(name, own[:, :, number]).astype(np.float32) for number, name in enumerate(names)]
                state = tables.state(shape, kind)
                values = {
                    **rule.of_tensor(int(tensor)),
                    kind: rule.struct(line_lookup.LINE_STRUCTS[kind], state),
                    "measured": rule.struct("LineMeasured", columns),
                    "size": np.float32(shape.length(kind)),
                }
                for member, value in zip(state, rule.call(function, values), strict=True):
                    member[:] = value

    return run
