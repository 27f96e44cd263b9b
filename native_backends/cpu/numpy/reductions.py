"""Library calls that take the place of the reductions: sums, extremes, softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...arrays.numpy_rows import column_sums, of_rows, row_blocks, row_maxima, row_sums

__all__ = ["REPLACEMENTS"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]

_DTYPES: tuple[Any, ...] = (np.float32, np.int32, np.uint32)


def _sum(p: Parameters, values: Array, sums: Array) -> None:
    outer, length, inner, chunk = p["outer"], p["length"], p["inner"], p["chunk"]
    chunks = -(-length // chunk)
    table = values.view(np.float32)[: outer * length * inner].reshape(outer, length, inner)
    result = sums.view(np.float32)[: outer * chunks * inner].reshape(outer, chunks, inner)
    if length % chunk and length > chunk:
        result[:] = np.add.reduceat(table, np.arange(0, length, chunk), axis=1, dtype=np.float64)
        return
    parts = table.reshape(outer * chunks, min(length, chunk), inner)
    if inner == 1:
        result.reshape(-1)[:] = row_sums(parts[..., 0])
    else:
        result.reshape(-1, inner)[:] = column_sums(parts)


def _extremum(p: Parameters, values: Array, places: Array, result: Array) -> None:
    outer, length, inner, count, chunk = p["outer"], p["length"], p["inner"], p["count"], p["chunk"]
    table = values.view(_DTYPES[p["kind"]])[: outer * length * inner].reshape(outer, length, inner)
    candidates: Array = np.arange(count).reshape(1, count, 1)
    looked_at = table
    if p["has_places"]:
        candidates = places.view(np.int32)[: outer * count * inner].reshape(outer, count, inner)
        looked_at = np.take_along_axis(table, candidates, 1)
    find = np.argmin if p["is_smallest"] else np.argmax
    chunks = -(-count // chunk)
    found = result.view(_DTYPES[p["kind"]] if p["gives_value"] else np.int32)
    found = found[: outer * chunks * inner].reshape(outer, chunks, inner)
    for number in range(chunks):
        first = number * chunk
        at = first + find(looked_at[:, first : first + chunk], axis=1)[:, None]
        if p["has_places"]:
            at = np.take_along_axis(candidates, at, 1)
        found[:, number : number + 1] = np.take_along_axis(table, at, 1) if p["gives_value"] else at


def _softmax(p: Parameters, values: Array, result: Array) -> None:
    shape = (p["rows"], p["columns"])
    tables = (one.view(np.float32)[: shape[0] * shape[1]].reshape(shape) for one in (values, result))
    table, written = tables
    for block in row_blocks(*shape):
        target = written[block]
        np.subtract(table[block], of_rows(row_maxima(table[block]), p["columns"]), out=target)
        powers = np.exp(target, out=None if p["is_log"] else target)
        totals = row_sums(powers).astype(np.float32)
        if p["is_log"]:
            target -= of_rows(np.log(totals), p["columns"])
        else:
            target /= of_rows(totals, p["columns"])


REPLACEMENTS: dict[str, Callable[..., None]] = {"sum": _sum, "extremum": _extremum, "softmax": _softmax}
