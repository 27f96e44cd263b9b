"""A rule's `update` over the rows that a gradient has; see `wgsl.rows_shell`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...runtime.rows import RowsKernel
from ...wgsl import transform_lookup
from ..arrays import jax_arrays
from ..arrays.jax_arrays import floats, put_at, words
from ..arrays.sparse import row_heads
from .bindings import Array
from .slots import Slot
from .tables import BoundRule, TensorScalars

__all__ = ["update_rows"]

Values = Mapping[str, Any]


def update_rows(kernel: RowsKernel, p: Values, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """All entries at once; those that are not the first of their row are left out when rows are stored."""
    rule = BoundRule(kernel, arrays)
    bound, length, count = rule.bound, p["length"], p["count"]
    params = floats(bound["params"])
    whole = params.size // length
    table = params[: whole * length].reshape(whole, length)
    rows, is_head = row_heads(jax_arrays, p, bound["rows"])
    scalars = rule.scalars_of(rule.table[p["tensor"]])
    changes = is_head & (scalars.is_active == 1)

    slots = {name: Slot(kind, bound[name], (whole, length)) for name, kind in kernel.slots.items()}
    param = jnp.take(table, rows, axis=0, mode="clip")
    index = rows[:, None] * np.uint32(length) + lax.iota(np.uint32, length)
    grad = _gradient(rule, p, scalars, floats(bound["sums"])[: count * length].reshape(count, length), param, index)
    state = [slots[name].rows(rows).load() if name in slots else np.float32(0) for name in kernel.rule.state]
    values = {"param": param, "grad": -grad if rule.kernel.negates else grad, "state": rule.struct("State", state)}
    updated = rule.call("update", {**rule.of_tensor(scalars), **values})

    new: dict[str, Array] = {}
    changed = put_at(table, rows, jnp.broadcast_to(updated.param, param.shape), changes)
    new["params"] = jnp.concatenate([changed.reshape(-1), params[whole * length :]])
    results = dict(zip(kernel.rule.state, getattr(updated, "state", ()), strict=False))
    for number, (name, slot) in enumerate(slots.items()):
        seed = scalars.step.astype(np.uint32) * np.uint32(len(slots)) + np.uint32(number)
        value = jnp.broadcast_to(results[name], param.shape)
        new[name] = slot.with_rows(rows, value, index, seed, changes)
    pairs = zip(kernel.bindings, arrays, strict=True)
    return tuple(new.get(binding.name, array) for binding, array in pairs if binding.writes)


def _gradient(rule: BoundRule, p: Values, scalars: TensorScalars, raw: Array, param: Array, index: Array) -> Array:
    """The gradient of rows, as transforms leave it."""
    transforms = rule.transforms
    if transforms is None:
        return raw
    values: dict[str, Any] = {
        "grad": raw,
        "param": param,
        "index": index,
        "tensor": jnp.asarray(p["tensor"], np.uint32),
    }
    values |= {"t": transforms.struct(scalars.words), "on": scalars.on}
    names = transform_lookup.parameters_of(rule.module, "transform_gradient")
    if "block_entries" in rule.bound:
        entry = words(rule.bound["block_entries"]).reshape(-1, transform_lookup.BLOCK_ENTRY_WORDS)[p["block"]]
        needed = (name for name in names if name not in values)
        values |= {name: transforms.row_values(name, entry[1], entry[2], index) for name in needed}
    result: Array = rule.functions["transform_gradient"](*(values[name] for name in names))
    return result
