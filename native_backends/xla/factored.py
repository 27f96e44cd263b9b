"""The kernels of rules that keep state per row and per column; see `wgsl.factored_shell`.

What is measured of a line is complete after each dispatch here, so it is stored in the first of the line's partials.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ...runtime.factored import LineMeasureKernel, LineSettleKernel
from ...wgsl import rule_shell
from ...wgsl.shell import BLOCK, member_names
from ..arrays.jax_arrays import floats
from ..arrays.lines import KINDS
from .bindings import Array, total_of
from .lines import Lines, Stack
from .tables import Blocks, BoundRule

__all__ = ["measure_lines", "settle_lines"]


def _lines(rule: BoundRule) -> Lines:
    assert rule.lines is not None
    return rule.lines


def measure_lines(rule: BoundRule) -> dict[str, Array]:
    """`factored_shell.measure_lines`."""
    kernel, lines = rule.kernel, _lines(rule)
    assert isinstance(kernel, LineMeasureKernel)
    count = rule.bound["params" if "params" in rule.bound else "grads"].size // BLOCK
    blocks = Blocks(rule, lines.tensors(count), lines.sizes(count))
    names = member_names(rule.module, "LineMeasured")
    partials = floats(rule.bound["line_partials"]).reshape(-1, len(names))
    for stack, measured in zip(lines.stacks, blocks.of_stacks(kernel.part), strict=True):
        is_due = rule.scalars_of(rule.rows_of(stack.tensors)[:, None, None, None]).is_active == 1
        values = [jnp.where(is_due, value, np.float32(0)) for value in measured]
        partials = Lines.replaced(partials, stack.shape.partials, _totals(stack, names, values))
    return {"line_partials": partials}


def _totals(stack: Stack, names: list[str], values: list[Array]) -> Array:
    """Return (tensors, partials, members): the totals of all lines, where the first partials of each kind are."""
    totals: dict[str, list[Array]] = {kind: [] for kind in KINDS}
    for name, value in zip(names, values, strict=True):
        full = jnp.broadcast_to(value, (len(stack.tensors), *stack.shape[1:4]))
        totals["row"].append(_total(name, full, 3))
        totals["column"].append(_total(name, full, 2))
        totals["matrix"].append(_total(name, totals["row"][-1], 2))
    parts = []
    for kind in KINDS:
        of_kind = jnp.stack([total.reshape(len(stack.tensors), -1) for total in totals[kind]], axis=2)
        tiles = stack.shape.partials_of(kind)[1]
        parts.append(jnp.pad(of_kind, ((0, 0), (0, (tiles - 1) * stack.shape.count(kind)), (0, 0))))
    return jnp.concatenate(parts, axis=1)


def _total(name: str, values: Array, axis: int) -> Array:
    return values.max(axis=axis) if name.startswith(rule_shell.MAXIMUM) else total_of(values, axis)


def settle_lines(rule: BoundRule) -> dict[str, Array]:
    """`factored_shell.settle_lines`."""
    kernel, lines = rule.kernel, _lines(rule)
    assert isinstance(kernel, LineSettleKernel)
    names = member_names(rule.module, "LineMeasured")
    partials, new = floats(rule.bound["line_partials"]).reshape(-1, len(names)), floats(rule.bound["lines"])
    for stack in lines.stacks:
        shape = stack.shape
        scalars = rule.scalars_of(rule.rows_of(stack.tensors)[:, None])
        measured = stack.of(partials, shape.partials, stack.partials)
        state = {kind: lines.load(stack, kind) for kind in KINDS}
        for kind, function in kernel.functions.items():
            first = shape.partials_of(kind)[0] - shape.partials
            own = measured[:, first : first + shape.count(kind)]
            values = {
                **rule.of_tensor(scalars),
                kind: lines.struct(kind, state[kind]),
                "measured": rule.struct("LineMeasured", jnp.moveaxis(own, 2, 0)),
                "size": np.float32(shape.length(kind)),
            }
            pairs = zip(state[kind], rule.call(function, values), strict=True)
            state[kind] = [jnp.where(scalars.is_active == 1, value, old) for old, value in pairs]
        words = jnp.concatenate([member for members in state.values() for member in members], axis=1)
        new = Lines.replaced(new, shape.lines, words)
    return {"lines": new}
