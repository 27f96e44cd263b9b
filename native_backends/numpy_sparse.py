"""Gradients of some rows, in NumPy.

What takes the place of the kernels that sort and add up entries, and a rule's `update` over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .numpy_rules import BoundRule

__all__ = ["REPLACEMENTS", "bind_rows"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]

_CHUNK = 1 << 15
"""Elements handled at once."""


def _words(raw: Array) -> Array:
    return raw.view(np.uint32)


def _floats(raw: Array) -> Array:
    return raw.view(np.float32)


def _sort_rows(p: Parameters, indices: Array, rows: Array, order: Array) -> None:
    count = p["count"]
    found = np.minimum(_words(indices)[:count], np.uint32(p["rows"]))
    for first in range(0, count, p["block"]):
        part = found[first : first + p["block"]]
        places = np.argsort(part, kind="stable")
        _words(rows)[first : first + part.size] = part[places]
        _words(order)[first : first + part.size] = places + first


def _merge_rows(p: Parameters, rows_in_blocks: Array, order_in_blocks: Array, rows: Array, order: Array) -> None:
    found = _words(rows_in_blocks)[: p["count"]]
    places = np.argsort(found, kind="stable")
    _words(rows)[: p["count"]] = found[places]
    _words(order)[: p["count"]] = _words(order_in_blocks)[places]


def _heads(p: Parameters, rows: Array) -> tuple[Array, Array]:
    """Where the entries of each row begin, and the row."""
    found = _words(rows)[: p["count"]]
    found = found[: np.searchsorted(found, p["rows"])]
    heads = np.flatnonzero(np.diff(found, prepend=found[:1] + np.uint32(1)))
    return heads, found[heads]


def _table(p: Parameters, raw: Array) -> Array:
    return _floats(raw)[: p["count"] * p["length"]].reshape(p["count"], p["length"])


def _sum_rows(p: Parameters, values: Array, rows: Array, order: Array, sums: Array) -> None:
    """Each row whole, so that nothing is left to join."""
    heads, _ = _heads(p, rows)
    if heads.size:
        end = np.searchsorted(_words(rows)[: p["count"]], p["rows"])
        given = _table(p, values)[_words(order)[:end]]
        _table(p, sums)[heads] = np.add.reduceat(given, heads, axis=0, dtype=np.float64)


def _join_rows(p: Parameters, rows: Array, sums: Array) -> None:
    """Nothing: see `_sum_rows`."""


def _spread_rows(p: Parameters, rows: Array, sums: Array, dense: Array) -> None:
    heads, found = _heads(p, rows)
    _floats(dense).reshape(-1, p["length"])[found] = _table(p, sums)[heads]


def _nonfinite_rows(p: Parameters, rows: Array, sums: Array, found_inf: Array) -> None:
    heads, _ = _heads(p, rows)
    if not np.isfinite(_table(p, sums)[heads]).all():
        _words(found_inf)[0] = 1


def _unscale_rows(p: Parameters, indices: Array, values: Array, scaler: Array) -> None:
    state, given = _floats(scaler), _floats(values)[: p["size"]]
    is_row = np.repeat(_words(indices) < p["rows"], p["length"])
    if not np.isfinite(given[is_row]).all():
        state[1] = 1
    given *= np.float32(1) / state[0]


REPLACEMENTS: dict[str, Callable[..., None]] = {
    "join_rows": _join_rows,
    "merge_rows": _merge_rows,
    "nonfinite_rows": _nonfinite_rows,
    "sort_rows": _sort_rows,
    "spread_rows": _spread_rows,
    "unscale_rows": _unscale_rows,
    "sum_rows": _sum_rows,
}


def bind_rows(rule: BoundRule, p: Parameters) -> Callable[[], None]:
    """A rule's `update` over the rows that a gradient has."""
    tensor, length = p["tensor"], p["length"]
    params = _floats(rule.bound["params"]).reshape(-1, length)
    slots = {name: slot.rows(params.size, length) for name, slot in rule.slots.items()}
    sums = _table(p, rule.bound["sums"])
    turn = max(1, _CHUNK // length)

    def run() -> None:
        if rule.is_active[tensor] != 1:
            return
        shared, step = rule.of_tensor(tensor), int(rule.scalars[tensor, rule.scalar_names.index("step")])
        all_heads, all_rows = _heads(p, rule.bound["rows"])
        for first in range(0, all_heads.size, turn):
            heads, rows = (one[first : first + turn] for one in (all_heads, all_rows))
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
