"""The kernels of rules that keep state per row and per column, for NumPy and JAX; see `wgsl.factored_shell`.

What is measured of a line is complete after each dispatch here, so that the buffer of partials has room for all totals.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Array
from .lines import KINDS
from .rules import Rule

__all__ = ["measure_lines", "settle_lines"]


def measure_lines(rule: Rule) -> None:
    """`factored_shell.measure_lines`: the totals follow one another by kind, member, tensor and line."""
    xp, names = rule.xp, rule.member_names("LineMeasured")
    for stack in rule.stacks():
        count, shape = len(stack.tensors), stack.shape
        if not xp.is_somewhere(rule.scalars_along(stack.tensors, 0).is_active == 1):
            continue
        rows: dict[str, list[Array]] = {name: [] for name in names}
        columns: dict[str, list[Array]] = {name: [] for name in names}
        for values in rule.measured_in(stack):
            for name, value in zip(names, values, strict=True):
                rows[name].append(xp.total_of(name, value, 3).reshape(count, -1))
                columns[name].append(xp.total_of(name, value, 2))
        totals: dict[str, list[Array]] = {kind: [] for kind in KINDS}
        for name in names:
            of_rows, of_columns = (_joined(xp, pieces) for pieces in (rows[name], columns[name]))
            totals["row"].append(of_rows)
            pieces = of_columns.shape[1] // shape.matrices  # of each matrix
            if pieces > 1:
                of_columns = xp.total_of(name, of_columns.reshape(count, shape.matrices, pieces, shape.columns), 2)
            totals["column"].append(of_columns)
            totals["matrix"].append(xp.total_of(name, of_rows.reshape(count, shape.matrices, shape.rows), 2))
        vectors = [total.reshape(-1) for kind in KINDS for total in totals[kind]]
        rule.put("line_partials", xp.concatenate(vectors).astype(np.float32), shape.partials * len(names))


def _joined(xp: Any, pieces: list[Array]) -> Array:
    """Return the totals of pieces of the tensors, (tensors, lines of a piece, ...), as those of all lines."""
    return xp.concatenate(pieces, axis=1) if len(pieces) > 1 else pieces[0]


def settle_lines(rule: Rule) -> None:
    """`factored_shell.settle_lines`."""
    kernel: Any = rule.kernel
    xp, lines, names = rule.xp, rule.lines, rule.member_names("LineMeasured")
    assert lines is not None
    partials = rule.vectors["line_partials"]
    for stack in rule.stacks():
        count, shape = len(stack.tensors), stack.shape
        scalars = rule.scalars_along(stack.tensors, 1)
        of_tensor, is_due = rule.of_tensor(scalars), scalars.is_active == 1
        if not xp.is_somewhere(is_due):
            continue
        state, first = lines.load(stack), shape.partials * len(names)
        for kind, (_, lines_of_tensor) in zip(KINDS, stack.lines, strict=True):
            size = count * lines_of_tensor
            if kind in kernel.functions:
                measured = partials[first : first + len(names) * size].reshape(len(names), count, -1)
                values = {
                    **of_tensor,
                    kind: lines.struct(kind, state[kind]),
                    "measured": rule.struct("LineMeasured", measured),
                    "size": np.float32(shape.length(kind)),
                }
                pairs = zip(state[kind], rule.call(kernel.functions[kind], values), strict=True)
                state[kind] = [xp.where(is_due, value, old) for old, value in pairs]
            first += len(names) * size
        words = xp.concatenate([member for members in state.values() for member in members], axis=1)
        rule.put("lines", words, shape.lines)
