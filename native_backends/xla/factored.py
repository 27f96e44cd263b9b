"""The kernels of rules that keep state per row and per column; see `wgsl.factored_shell`.

What is measured of a line is complete after each dispatch here, so it is stored in the first of the line's partials.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...runtime.factored import LineMeasureKernel, LineSettleKernel
from ...wgsl import factored_shell, rule_shell
from ...wgsl.shell import BLOCK, member_names
from ..arrays.jax_arrays import floats, put_at, words
from .bindings import Array, last_marked
from .lines import KINDS, Lines
from .tables import Blocks, BoundRule

__all__ = ["measure_lines", "settle_lines"]


def _lines(rule: BoundRule) -> Lines:
    assert rule.lines is not None
    return rule.lines


def _blocks(rule: BoundRule) -> Blocks:
    """The blocks of the arena, of which the kernel is bound to no table: by where the tensors of its tiles begin."""
    lines = _lines(rule)
    values = rule.bound["params" if "params" in rule.bound else "grads"]
    tensors = words(rule.bound["tiles"]).reshape(-1, factored_shell.TILE_WORDS)[:, 0]
    count = values.size // BLOCK
    begins = lines.shape(tensors).first // BLOCK
    marks = jnp.zeros(count, np.int32).at[begins].max(lax.iota(np.int32, tensors.size) + 1, mode="drop")
    tensor = tensors[last_marked(marks)]
    shape = lines.shape(tensor)
    left = shape.size.astype(np.int32) - (lax.iota(np.int32, count) * BLOCK - shape.first.astype(np.int32))
    return Blocks(rule, tensor, jnp.clip(left, 0, BLOCK).astype(np.uint32))


def measure_lines(rule: BoundRule) -> dict[str, Array]:
    """`factored_shell.measure_lines`."""
    kernel, tables = rule.kernel, _lines(rule)
    assert isinstance(kernel, LineMeasureKernel)
    blocks = _blocks(rule)
    measured = rule.call(kernel.part, blocks.elements())
    shape = tables.shape(blocks.tensor)
    mask = (blocks.scalars.is_active == 1) & blocks.inside
    lines = shape.lines_at(blocks.places - shape.first)
    names = member_names(rule.module, "LineMeasured")
    partials = floats(rule.bound["line_partials"]).reshape(-1, len(names))
    count = partials.shape[0]
    places = {kind: jnp.where(mask, shape.partials_of(kind) + lines[kind], count).reshape(-1) for kind in KINDS}
    columns = []
    for name, value in zip(names, measured, strict=True):
        column = jnp.zeros(count, np.float32)
        values = jnp.broadcast_to(value, blocks.shape).reshape(-1)
        for kind in KINDS:
            at = column.at[places[kind]]
            is_largest = name.startswith(rule_shell.MAXIMUM)
            column = at.max(values, mode="drop") if is_largest else at.add(values, mode="drop")
        columns.append(column)
    return {"line_partials": jnp.stack(columns, axis=1)}


def settle_lines(rule: BoundRule) -> dict[str, Array]:
    """`factored_shell.settle_lines`."""
    kernel, tables = rule.kernel, _lines(rule)
    assert isinstance(kernel, LineSettleKernel)
    names = member_names(rule.module, "LineMeasured")
    partials = floats(rule.bound["line_partials"]).reshape(-1, len(names))
    tensors = words(rule.bound["groups"]).reshape(-1, factored_shell.GROUP_WORDS)[:, 0]
    count, state = partials.shape[0], floats(rule.bound["lines"])
    shapes = tables.shape(tensors)
    numbers = lax.iota(np.int32, tensors.size) + 1
    new = state
    for kind, function in kernel.functions.items():
        # Each of the partials finds the line that it is the first of, if it is that.
        marks = jnp.zeros(count, np.int32).at[shapes.partials_of(kind)].max(numbers, mode="drop")
        tensor = tensors[last_marked(marks)]
        shape = tables.shape(tensor)
        at = lax.iota(np.uint32, count)
        line = at - shape.partials_of(kind)
        scalars = rule.scalars_of(jnp.take(rule.table, tensor, axis=0, mode="clip"))
        size = {"row": shape.columns, "column": shape.rows, "matrix": shape.rows * shape.columns}[kind]
        values = {
            **rule.of_tensor(scalars),
            kind: tables.load(shape, kind, line),
            "measured": rule.struct("LineMeasured", partials.T),
            "size": size.astype(np.float32),
        }
        is_first = (at >= shape.partials_of(kind)) & (line < shape.count(kind)) & (scalars.is_active == 1)
        for place, value in zip(tables.places(shape, kind, line), rule.call(function, values), strict=True):
            new = put_at(new, place, jnp.broadcast_to(value, count), is_first)
    return {"lines": new}
