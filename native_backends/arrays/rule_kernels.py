"""The kernels of rules over arrays, for NumPy and JAX: the shells of `wgsl.*_shell`, a part of an arena at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...runtime.factored import LineMeasureKernel, LineSettleKernel
from ...runtime.rows import RowsKernel
from ...runtime.rule_kernels import AdvanceKernel, MeasureKernel, RoundKernel, SettleKernel, UpdateKernel
from ...runtime.transform_kernels import TransformMeasureKernel, TransformRowsKernel, TransformSettleKernel
from ...wgsl import rule_shell, transform_lookup
from . import factored, measured
from .rules import Rule, TensorScalars

__all__ = ["RULE_KERNELS"]


def _update(rule: Rule) -> None:
    """`update_shell.update`."""
    kernel: Any = rule.kernel
    is_somewhere = rule.xp.is_somewhere
    on_call = kernel.part not in rule_shell.STEP_PARTS
    gathers = rule.transforms is not None and kernel.part == kernel.rule.gathering_part
    for part in rule.parts():
        scalars = part.scalars
        is_due = scalars.step != 0 if on_call else scalars.is_active == 1
        grad = part.gather(is_due) if gathers else None
        if is_somewhere(is_due):
            part.store(part.call(kernel.part, grad), kernel.changed_slots, is_due)


def _update_rows(rule: Rule) -> None:
    """`rows_shell.update_rows`."""
    for part in rule.parts_with_rows():
        is_due = part.scalars.is_active == 1
        if rule.xp.is_somewhere(is_due):
            part.store(part.call("update"), rule.kernel.slots, is_due)


def _round_params(rule: Rule) -> None:
    """`update_shell.round_params`: to the nearest, but for vectors of bfloat16."""
    xp, count = rule.xp, len(rule.table)
    for part in rule.parts():
        is_ours = part.tensor + 1 < count  # the last one stands for tensors of others
        if not xp.is_somewhere(is_ours):
            continue
        is_cut = (xp.words(part.read("params")) & 0xFFFF != 0).reshape(np.size(part.tensor), -1)
        size = is_cut.shape[1]
        vectors = xp.pad(is_cut, ((0, 0), (0, -size % 4))).reshape(len(is_cut), -1, 4).any(axis=2)
        changes = xp.repeat(vectors, 4, axis=1)[:, :size].reshape(part.shape)
        part.store_params(part.param(), is_ours & changes)


def _measure(rule: Rule) -> None:
    """`measure_shell.measure`."""
    names = rule.member_names("Measured")
    for part in rule.parts():
        is_active = part.scalars.is_active == 1
        if rule.xp.is_somewhere(is_active):
            part.put_partials(names, part.call("measure"), is_active)


def _settle(rule: Rule) -> None:
    """`measure_shell.settle`."""
    entries = rule.entries
    tensors = rule.scalars_of(rule.table[: len(entries)])
    totals = rule.totals("Measured", over_all=rule.kernel.rule.over_all)
    measured = rule.struct("Measured", totals.values())
    values = {**rule.of_tensor(tensors), "measured": measured, "size": entries[:, 4].astype(np.float32)}
    settled = rule.call("settle", values)
    rule.put_tensors(tensors._replace(scalars=settled))


def _advance(rule: Rule) -> None:
    """`advance_shell.advance`."""
    kernel: Any = rule.kernel
    xp, entries, transforms = rule.xp, rule.entries, rule.transforms
    tensors = rule.scalars_of(rule.table[: len(entries)])
    skip, measured = _checked(rule) if kernel.checked or transforms is not None else (None, {})
    on: Any = None
    of_transforms: list[Any] = []
    if transforms is None:
        is_active = xp.where(entries[:, 1] != 0, np.uint32(1), np.uint32(2 if kernel.rule.over_all else 0))
        is_active = is_active if skip is None else xp.where(skip, np.uint32(0), is_active)
    else:
        is_active, on, of_transforms = transforms.begin(entries, tensors.words, measured, skip)
    groups = xp.floats(rule.bound["hyper"]).reshape(-1, len(tensors.hyper))
    tensors = tensors._replace(hyper=xp.columns(xp.rows_at(groups, entries[:, 0])))
    if "advance" in rule.functions:
        scalars = list(rule.call("advance", rule.of_tensor(tensors)))
    else:
        scalars = [value + np.float32(1) for value in tensors.scalars]
    step = kernel.rule.scalars.index("step")
    scalars[step] = xp.where(is_active == 1, scalars[step], tensors.step)
    rule.put_tensors(TensorScalars(is_active, tensors.hyper, scalars, scalars[step], on, of_transforms))


def _checked(rule: Rule) -> tuple[Any, Mapping[str, Any]]:
    """Return whether the call is skipped, None for never, and what was measured; write `found_inf` and `scaler`."""
    kernel: Any = rule.kernel
    xp, measured = rule.xp, {}
    if kernel.measured is not None:
        measured = rule.totals(f"Partial{kernel.measured}", over_all=True)
    if not kernel.checked:
        return None, measured
    found_inf = xp.words(rule.bound["found_inf"])
    skip = found_inf[0] != 0
    if measured:
        skip = skip | (measured[transform_lookup.BAD] != 0)
    rule.put("found_inf", xp.stack([np.uint32(0), found_inf[1] + skip]))
    if rule.transforms is not None and "scaler" in rule.bound:
        rule.put("scaler", xp.where(skip, np.float32(1), xp.floats(rule.bound["scaler"])[1]), 1)
    return skip, measured


RULE_KERNELS: Mapping[type, Callable[[Rule], None]] = {
    AdvanceKernel: _advance,
    LineMeasureKernel: factored.measure_lines,
    LineSettleKernel: factored.settle_lines,
    MeasureKernel: _measure,
    RoundKernel: _round_params,
    RowsKernel: _update_rows,
    SettleKernel: _settle,
    TransformMeasureKernel: measured.measure,
    TransformRowsKernel: measured.measure_rows,
    TransformSettleKernel: measured.settle,
    UpdateKernel: _update,
}
"""Each runs one class of kernels, over what these are bound to."""
