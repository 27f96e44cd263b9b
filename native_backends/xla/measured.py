"""The kernels that measure gradients for transforms: the shells of `wgsl.transform_shell`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...runtime.transform_kernels import TransformMeasureKernel, TransformRowsKernel, TransformSettleKernel
from ...wgsl import rule_shell, shell, transform_lookup, transform_shell
from ..arrays.jax_arrays import floats
from .bindings import Array, last_marked
from .tables import (
    Blocks,
    BoundRule,
    entries_of,
    measured_by_block,
    measured_by_tensor,
    partials_of,
    with_columns,
)
from .transforms import Transforms

__all__ = ["measure", "rows", "settle"]


def _tables(rule: BoundRule) -> Transforms:
    assert rule.transforms is not None
    return rule.transforms


def measure(rule: BoundRule) -> dict[str, Array]:
    """`transform_shell.measure`."""
    kernel, tables = rule.kernel, _tables(rule)
    assert isinstance(kernel, TransformMeasureKernel)
    blocks = Blocks.of(rule)
    on, t = blocks.scalars.on, None
    assert on is not None
    if kernel.is_first:
        on = jnp.take(entries_of(rule)[:, 1], blocks.tensor, mode="clip")
        t = tables.struct_at_begin(blocks.scalars.words, on)
    names = shell.member_names(rule.module, f"Partial{kernel.number}")
    measured = blocks.transformed(f"measure_transform_{kernel.number}", blocks.floats("grads"), t, on)
    return {"partials": measured_by_block(names, measured, tables.takes_part(on) & blocks.inside)}


def settle(rule: BoundRule) -> dict[str, Array]:
    """`transform_shell.settle`."""
    kernel, tables = rule.kernel, _tables(rule)
    assert isinstance(kernel, TransformSettleKernel)
    entries = entries_of(rule)
    tensors = rule.scalars_of(rule.table[: entries.shape[0]])
    names, partials = partials_of(rule, f"Partial{kernel.number}")
    totals = measured_by_tensor(names, partials, None if kernel.over_all else entries)
    measured = rule.functions[f"Partial{kernel.number}"](*totals)
    size = entries[:, 4].astype(np.float32)
    settled = rule.functions[f"settle_transform_{kernel.number}"](tables.struct(tensors.words), measured, size)
    takes_part = tables.takes_part(tensors.on)
    columns = zip(tables.columns_of(settled, entries.shape[0]), tensors.words, strict=True)
    new = [jnp.where(takes_part, new, old) for new, old in columns]
    return {"tensor_scalars": with_columns(rule, tensors._replace(words=new))}


def rows(rule: BoundRule) -> dict[str, Array]:
    """`transform_shell.rows`: every element finds its row."""
    kernel, tables = rule.kernel, _tables(rule)
    assert isinstance(kernel, TransformRowsKernel)
    table = jnp.asarray(rule.bound["row_entries"]).reshape(-1, transform_shell.ROW_WORDS)
    tensor, first, index, size = table.T
    count = rule.bound["grads"].size
    at = lax.iota(np.uint32, count)
    marks = jnp.zeros(count, np.int32).at[first].max(lax.iota(np.int32, tensor.size) + 1, mode="drop")
    row = last_marked(marks)
    within = at - first[row]
    tensors = rule.scalars_of(rule.table)
    assert tensors.on is not None
    columns = [column[tensor[row]] for column in tensors.words]
    on = tensors.on[tensor[row]]
    values: dict[str, Any] = {name: floats(rule.bound[key]) for name, key in _ELEMENTS.items() if key in rule.bound}
    values |= {"index": index[row] + within, "tensor": tensor[row], "t": tables.struct(columns), "on": on}
    names = transform_lookup.parameters_of(rule.module, f"measure_transform_{kernel.number}")
    values |= {name: floats(rule.bound[f"rows{name.removeprefix('row')}"])[row] for name in names if name not in values}
    measured = rule.functions[f"measure_transform_{kernel.number}"](*(values[name] for name in names))
    mask = (marks.max() > 0) & (within < size[row]) & tables.takes_part(on)
    members = shell.member_names(rule.module, f"Partial{kernel.number}")
    totals = [_by_row(name, value, mask, row, tensor.size) for name, value in zip(members, measured, strict=True)]
    t = tables.struct([column[tensor] for column in tensors.words])
    partial = rule.functions[f"Partial{kernel.number}"](*totals)
    settled = rule.functions[f"settle_transform_{kernel.number}"](t, partial, size.astype(np.float32))
    return {f"rows{kernel.number}": jnp.broadcast_to(settled, tensor.size)}


_ELEMENTS: Mapping[str, str] = {"grad": "grads", "param": "params", "kept": "kept"}


def _by_row(name: str, value: Array, mask: Array, row: Array, count: int) -> Array:
    kept = jnp.where(mask, value, np.float32(0))
    zeros = jnp.zeros(count, np.float32)
    return zeros.at[row].max(kept) if name.startswith(rule_shell.MAXIMUM) else zeros.at[row].add(kept)
