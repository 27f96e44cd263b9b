"""The kernels of rules: the shells of `wgsl.*_shell`, over all blocks of an arena or all tensors at once.

Each gives what it writes by the names of the bindings.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...runtime.rule_kernels import AdvanceKernel, MeasureKernel, RoundKernel, SettleKernel, UpdateKernel
from ...wgsl import rule_shell, shell, slot_storage
from ...wgsl.transform_lookup import BAD
from ..arrays.jax_arrays import floats, words
from .bindings import Array
from .tables import (
    Blocks,
    BoundRule,
    TensorScalars,
    entries_of,
    measured_by_block,
    measured_by_tensor,
    partials_of,
    taken,
    with_columns,
)

__all__ = ["advance", "measure", "round_params", "settle", "update"]


def update(rule: BoundRule) -> dict[str, Array]:
    """`update_shell.update`."""
    kernel = rule.kernel
    assert isinstance(kernel, UpdateKernel)
    blocks = Blocks.of(rule)
    scalars = blocks.scalars
    is_due = scalars.is_active == 1 if kernel.part in rule_shell.STEP_PARTS else scalars.step != 0
    new: dict[str, Array] = {}
    grad = None
    if rule.transforms is not None and "gather_gradient" in rule.functions:
        grad, new["kept"] = blocks.gather(is_due)
    updated = blocks.call(kernel.part, grad)
    mask = is_due & blocks.inside
    steps = scalars.step.astype(np.uint32)
    count = len(kernel.slots)
    seed = steps * np.uint32(count + 1) + np.uint32(count)
    new |= blocks.params().stored(updated.param, mask, (blocks.places, seed))
    slots = blocks.slots()
    results = dict(zip(kernel.rule.state, getattr(updated, "state", ()), strict=False))
    for number, name in enumerate(kernel.slots):
        if name in kernel.changed_slots:
            value = jnp.broadcast_to(results[name], blocks.shape)
            seed = steps * np.uint32(count) + np.uint32(number)
            stored = slots[name].stored(value, blocks.places, seed, mask)
            names = (name, slot_storage.largest_name(name))
            new |= dict(zip(names, stored, strict=False))
    return new


def round_params(rule: BoundRule) -> dict[str, Array]:
    """`update_shell.round_params`."""
    assert isinstance(rule.kernel, RoundKernel)
    blocks = Blocks.of(rule)
    is_ours = blocks.tensor + 1 < len(rule.table)  # the last one stands for tensors of others
    return blocks.params().rounded(is_ours & blocks.inside)


def measure(rule: BoundRule) -> dict[str, Array]:
    """`measure_shell.measure`."""
    assert isinstance(rule.kernel, MeasureKernel)
    blocks = Blocks.of(rule)
    names = shell.member_names(rule.module, "Measured")
    mask = (blocks.scalars.is_active == 1) & blocks.inside
    return {"partials": measured_by_block(names, blocks.call("measure"), mask)}


def settle(rule: BoundRule) -> dict[str, Array]:
    """`measure_shell.settle`."""
    assert isinstance(rule.kernel, SettleKernel)
    entries = entries_of(rule)
    tensors = rule.scalars_of(rule.table[: entries.shape[0]])
    names, partials = partials_of(rule, "Measured")
    totals = measured_by_tensor(names, partials, None if rule.kernel.rule.over_all else entries)
    arguments = {"measured": rule.struct("Measured", totals), "size": entries[:, 4].astype(np.float32)}
    settled = rule.call("settle", {**rule.of_tensor(tensors), **arguments})
    scalars = [jnp.where(tensors.is_active != 0, new, old) for new, old in zip(settled, tensors.scalars, strict=True)]
    return {"tensor_scalars": with_columns(rule, tensors._replace(scalars=scalars))}


def advance(rule: BoundRule) -> dict[str, Array]:
    """`advance_shell.advance`."""
    kernel = rule.kernel
    assert isinstance(kernel, AdvanceKernel)
    bound, measured = rule.bound, kernel.measured
    entries = entries_of(rule)
    tensors = rule.scalars_of(rule.table[: entries.shape[0]])
    inactive = np.uint32(2 if kernel.rule.over_all else 0)
    skip: Any = words(bound["found_inf"])[0] != 0 if kernel.checked else jnp.asarray(False)
    totals: list[Array] = []
    if measured is not None:
        names, partials = partials_of(rule, f"Partial{measured}")
        totals = measured_by_tensor(names, partials, None)
        skip = skip | (totals[names.index(BAD)] != 0) if kernel.checked else skip
    new: dict[str, Array] = {}
    if rule.transforms is None:
        is_active = jnp.where(skip, np.uint32(0), jnp.where(entries[:, 1] != 0, np.uint32(1), inactive))
        tensors = tensors._replace(is_active=is_active)
    else:
        settled = measured if kernel.settles else None
        is_active, on, columns = rule.transforms.begin(entries, tensors.words, totals, settled, inactive, skip)
        tensors = tensors._replace(is_active=is_active, on=on, words=columns)
        if "scaler" in bound:
            scaler = floats(bound["scaler"])
            new["scaler"] = scaler.at[1].set(jnp.where(skip, np.float32(1), scaler[1]))
    if kernel.checked:
        found_inf = words(bound["found_inf"])
        new["found_inf"] = found_inf.at[0].set(np.uint32(0)).at[1].add(skip.astype(np.uint32))
    new["tensor_scalars"] = with_columns(rule, _advanced(rule, entries, tensors))
    return new


def _advanced(rule: BoundRule, entries: Array, tensors: TensorScalars) -> TensorScalars:
    """The scalars of those that take part, a step further."""
    groups = floats(rule.bound["hyper"]).reshape(-1, len(tensors.hyper))
    hyper = list(taken(groups, entries[:, 0]).T)
    if rule_shell.has_function(rule.module, "advance"):
        values = {"s": rule.struct("Scalars", tensors.scalars), "h": rule.struct("Hyper", hyper)}
        scalars = list(rule.call("advance", values))
    else:
        scalars = [value + np.float32(1) for value in tensors.scalars]
    step = rule.kernel.rule.scalars.index("step")
    scalars[step] = jnp.where(tensors.is_active == 1, scalars[step], tensors.step)
    is_due = tensors.is_active != 0
    return tensors._replace(
        hyper=[jnp.where(is_due, new, old) for new, old in zip(hyper, tensors.hyper, strict=True)],
        scalars=[jnp.where(is_due, new, old) for new, old in zip(scalars, tensors.scalars, strict=True)],
    )
