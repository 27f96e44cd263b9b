"""The kernels that measure gradients for transforms, in NumPy: the shells of `wgsl.transform_shell`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....runtime.transform_kernels import TransformMeasureKernel, TransformRowsKernel, TransformSettleKernel
from ....wgsl import rule_shell, shell, transform_lookup
from ...arrays.numpy_arrays import runs
from .rules import BoundRule
from .transform_tables import TransformTables

__all__ = [
    "bind_measure_transform",
    "bind_rows_transform",
    "bind_settle_transform",
    "total",
]

Array = np.ndarray[Any, Any]


def _tables(rule: BoundRule) -> TransformTables:
    assert rule.transforms is not None
    return rule.transforms


def total(rows: Array, names: Sequence[str]) -> list[Any]:
    """Return the sum of each column, or the largest value of those whose names say so."""
    return [
        np.float32(column.max(initial=0) if name.startswith(rule_shell.MAXIMUM) else column.sum(dtype=np.float64))
        for name, column in zip(names, rows.T, strict=True)
    ]


def bind_measure_transform(
    rule: BoundRule, kernel: TransformMeasureKernel, chunks: Callable[..., Any]
) -> Callable[[], None]:
    """`transform_shell.measure`."""
    tables, number = _tables(rule), kernel.number
    names = shell.member_names(rule.module, f"Partial{number}")
    partials = rule.bound["partials"].view(np.float32).reshape(-1, len(names))
    grads = rule.bound["grads"].view(np.float32)

    def at(tensor: int) -> tuple[Any, Any]:
        if not kernel.is_first:
            return tables.on[tensor], tables.struct(tables.words[tensor])
        on = rule.bound["tensors"].view(np.uint32).reshape(-1, rule_shell.ENTRY_WORDS)[tensor, 1]
        scale = rule.bound["scaler"].view(np.float32)[0] if "scaler" in rule.bound else np.float32(1)
        settings = tables.struct(rule.bound["transforms"].view(np.uint32))
        t = rule.functions["begin_transforms"](tables.struct(tables.words[tensor]), settings, scale, np.float32(on & 1))
        return on, t

    def run() -> None:
        partials[:] = 0
        for tensor, first, end in runs(rule.bound["blocks"]):
            on, t = at(tensor)
            if not tables.takes_part(on):
                continue
            for part in chunks(first, end):
                measured = tables.call(f"measure_transform_{number}", tensor, part, grads[part], t, on)
                columns = [np.broadcast_to(value, part.stop - part.start) for value in measured]
                partials[part.start // shell.BLOCK] = total(np.stack(columns, axis=1), names)

    return run


def bind_settle_transform(rule: BoundRule, kernel: TransformSettleKernel) -> Callable[[], None]:
    """`transform_shell.settle`."""
    tables, number = _tables(rule), kernel.number
    struct = f"Partial{number}"
    names = shell.member_names(rule.module, struct)
    partials = rule.bound["partials"].view(np.float32).reshape(-1, len(names))
    entries = rule.bound["tensors"].view(np.uint32).reshape(-1, rule_shell.ENTRY_WORDS)

    def run() -> None:
        everything = total(partials, names) if kernel.over_all else None
        for tensor in np.flatnonzero(tables.takes_part(tables.on)):
            _, _, first, blocks, size = entries[tensor]
            measured = rule.functions[struct](*(everything or total(partials[first : first + blocks], names)))
            t = tables.struct(tables.words[tensor])
            settled = rule.functions[f"settle_transform_{number}"](t, measured, np.float32(size))
            tables.words[tensor] = tables.columns_of(settled, 1)[0]

    return run


def bind_rows_transform(rule: BoundRule, kernel: TransformRowsKernel) -> Callable[[], None]:
    """`transform_shell.rows`."""
    tables, number = _tables(rule), kernel.number
    struct = f"Partial{number}"
    names = shell.member_names(rule.module, struct)
    entries = rule.bound["row_entries"].view(np.uint32).reshape(-1, 4)
    result = rule.bound[f"rows{number}"].view(np.float32)
    floats = {name: rule.bound[name].view(np.float32) for name in ("params", "grads", "kept") if name in rule.bound}
    earlier = {name: array.view(np.float32) for name, array in rule.bound.items() if name.startswith("rows")}

    def run() -> None:
        for row, (tensor, first, index, size) in enumerate(entries):
            on = tables.on[tensor]
            t = tables.struct(tables.words[tensor])
            measured = [np.float32(0)] * len(names)
            if tables.takes_part(on):
                part = slice(int(first), int(first) + int(size))
                values = {"grad": "grads", "param": "params", "kept": "kept"}
                available: dict[str, Any] = {key: floats[name][part] for key, name in values.items() if name in floats}
                available |= {"index": np.arange(index, index + size, dtype=np.uint32), "tensor": np.uint32(tensor)}
                available |= {"t": t, "on": on}
                available |= {f"row{name.removeprefix('rows')}": array[row] for name, array in earlier.items()}
                function = f"measure_transform_{number}"
                arguments = [available[name] for name in transform_lookup.parameters_of(rule.module, function)]
                values_of = [np.broadcast_to(value, size) for value in rule.functions[function](*arguments)]
                measured = total(np.stack(values_of, axis=1), names)
            settle = rule.functions[f"settle_transform_{number}"]
            result[row] = settle(t, rule.functions[struct](*measured), np.float32(size))

    return run
