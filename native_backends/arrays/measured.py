"""The kernels of gradient transforms over arrays, for NumPy and JAX: the shells of `wgsl.transform_shell`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...wgsl import transform_lookup, transform_shell
from .rules import Rule
from .transforms import BINDINGS, RowsOfTensors, Transforms, binding_of_rows, runs_of_rows, values_of

__all__ = ["measure", "measure_rows", "settle"]


def _transforms(rule: Rule) -> Transforms:
    assert rule.transforms is not None
    return rule.transforms


def measure(rule: Rule) -> None:
    """`transform_shell.measure`."""
    kernel: Any = rule.kernel
    transforms = _transforms(rule)
    names = rule.member_names(f"Partial{kernel.number}")
    for part in rule.parts():
        on, t = part.scalars.on, None
        if kernel.is_first:
            on = rule.xp.rows_at(rule.entries[:, 1], part.tensor)
            t = transforms.at_begin(part.scalars.words, on)
        takes_part = transforms.takes_part(on)
        if rule.xp.is_somewhere(takes_part):
            measured = part.transformed(f"measure_transform_{kernel.number}", part.read("grads"), t, on)
            part.put_partials(names, measured, takes_part)


def settle(rule: Rule) -> None:
    """`transform_shell.settle`."""
    kernel: Any = rule.kernel
    transforms, entries = _transforms(rule), rule.entries
    tensors = rule.scalars_of(rule.table[: len(entries)])
    struct = f"Partial{kernel.number}"
    measured = rule.functions[struct](*rule.totals(struct, over_all=kernel.over_all).values())
    size = entries[:, 4].astype(np.float32)
    settled = rule.functions[f"settle_transform_{kernel.number}"](transforms.struct(tensors.words), measured, size)
    takes_part = transforms.takes_part(tensors.on)
    pairs = zip(values_of(settled), tensors.words, strict=True)
    words = [rule.xp.where(takes_part, rule.xp.words(new), old) for new, old in pairs]
    rule.put_tensors(tensors._replace(words=words))


def measure_rows(rule: Rule) -> None:
    """`transform_shell.rows`."""
    kernel: Any = rule.kernel
    xp, transforms = rule.xp, _transforms(rule)
    table = xp.words(rule.bound["row_entries"]).reshape(-1, transform_shell.ROW_WORDS)
    struct, result = f"Partial{kernel.number}", f"rows{kernel.number}"
    names = transform_lookup.parameters_of(rule.module, f"measure_transform_{kernel.number}")
    members = rule.member_names(struct)
    measure, settle = (rule.functions[f"{part}_transform_{kernel.number}"] for part in ("measure", "settle"))
    for all_rows in runs_of_rows(table):
        for rows in rule.rows_at_once(all_rows):
            count = len(rows.tensors)
            of_elements, of_rows = (rule.scalars_along(rows.tensors, axes) for axes in (2, 1))
            values: dict[str, Any] = {"t": transforms.struct(of_elements.words), "on": of_elements.on}
            for name in names:
                if name not in values:
                    values[name] = _of_rows(rule, rows, name)
            measured = measure(*(values[name] for name in names))
            takes_part = transforms.takes_part(of_rows.on)
            shape, totals = (count, rows.rows, rows.size), []
            for name, value in zip(members, measured, strict=True):
                total = xp.total_of(name, xp.broadcast_to(value, shape), 2)
                totals.append(xp.where(takes_part, total, np.float32(0)).astype(np.float32))
            t = transforms.struct(of_rows.words)
            settled = settle(t, rule.functions[struct](*totals), np.float32(rows.size))
            rule.put(result, xp.broadcast_to(settled, shape[:2]), rows.number)


def _of_rows(rule: Rule, rows: RowsOfTensors, name: str) -> Any:
    """Return an argument of a transform's function for the elements of rows, by name."""
    xp, count = rule.xp, len(rows.tensors)
    match name:
        case "grad" | "param" | "kept":
            return rows.of(rule.vectors[BINDINGS[name]])
        case "index":
            first = rows.begin * rows.size
            return xp.arange(first, first + rows.rows * rows.size).astype(np.uint32).reshape(1, rows.rows, rows.size)
        case "tensor":
            return np.array(rows.tensors, np.uint32).reshape(count, 1, 1)
    of_earlier = rule.vectors[binding_of_rows(name)]
    return of_earlier[rows.number : rows.number + count * rows.rows].reshape(count, rows.rows, 1)
