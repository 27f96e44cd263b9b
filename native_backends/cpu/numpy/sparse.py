"""A rule's `update` over the rows that a gradient has, in NumPy; see `wgsl.rows_shell`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...arrays import numpy_arrays
from ...arrays.numpy_arrays import floats
from ...arrays.sparse import row_heads
from .library import CHUNK, Parameters

if TYPE_CHECKING:
    from .rules import BoundRule

__all__ = ["bind_rows"]


def bind_rows(rule: BoundRule, p: Parameters) -> Callable[[], None]:
    """A rule's `update` over the rows that a gradient has."""
    tensor, length = p["tensor"], p["length"]
    params = floats(rule.bound["params"]).reshape(-1, length)
    slots = {name: slot.rows(params.size, length) for name, slot in rule.slots.items()}
    sums = floats(rule.bound["sums"])[: p["count"] * length].reshape(-1, length)
    chunk_rows = max(1, CHUNK // length)

    def run() -> None:
        if rule.is_active[tensor] != 1:
            return
        shared, step = rule.of_tensor(tensor), int(rule.scalars[tensor, rule.scalar_names.index("step")])
        row, is_head = row_heads(numpy_arrays, p, rule.bound["rows"])
        all_heads = np.flatnonzero(is_head)
        all_rows = row[all_heads]
        for first in range(0, all_heads.size, chunk_rows):
            heads, rows = (vector[first : first + chunk_rows] for vector in (all_heads, all_rows))
            grad, param = sums[heads].ravel(), params[rows].ravel()
            if rule.transforms is not None:
                index = (rows[:, None] * np.uint32(length) + np.arange(length, dtype=np.uint32)).ravel()
                grad = rule.transforms.gradient_of_rows(tensor, p["block"], index, param, grad)
            state = [slots[name].load(rows).ravel() if name in slots else np.float32(0) for name in rule.state_names]
            values = {
                "param": param,
                "grad": -grad if rule.negates else grad,
                "state": rule.struct("State", state),
            }
            updated = rule.call("update", {**shared, **values})
            params[rows] = updated.param.reshape(-1, length)
            new = dict(zip(rule.state_names, getattr(updated, "state", ()), strict=True))
            for number, (name, slot) in enumerate(slots.items()):
                slot.store(rows, new[name].reshape(-1, length), step * len(slots) + number)

    return run
