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
    Its,
    entries_of,
    measured_by_block,
    measured_by_tensor,
    partials_of,
    with_columns,
)

__all__ = ["advance", "measure", "round_params", "settle", "update"]


def update(rule: BoundRule) -> dict[str, Array]:
    """`update_shell.update`."""
    kernel = rule.kernel
    assert isinstance(kernel, UpdateKernel)
    blocks = Blocks.of(rule)
    its = blocks.its
    is_due = its.is_active == 1 if kernel.part in rule_shell.STEP_PARTS else its.step != 0
    new: dict[str, Array] = {}
    grad = None
    if rule.transforms is not None and "gather_gradient" in rule.functions:
        grad, new["kept"] = rule.transforms.gather(blocks, is_due)
    updated = rule.call(kernel.part, blocks.elements(grad))
    mask = is_due & blocks.inside
    steps = its.step.astype(np.uint32)
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
    mask = (blocks.its.is_active == 1) & blocks.inside
    return {"partials": measured_by_block(names, rule.call("measure", blocks.elements()), mask)}


def settle(rule: BoundRule) -> dict[str, Array]:
    """`measure_shell.settle`."""
    assert isinstance(rule.kernel, SettleKernel)
    entries, its = entries_of(rule), rule.its(rule.table[: entries_of(rule).shape[0]])
    names, partials = partials_of(rule, "Measured")
    totals = measured_by_tensor(names, partials, None if rule.kernel.rule.over_all else entries)
    given = {"measured": rule.struct("Measured", totals), "size": entries[:, 4].astype(np.float32)}
    settled = rule.call("settle", {**rule.of_tensor(its), **given})
    scalars = [jnp.where(its.is_active != 0, new, old) for new, old in zip(settled, its.scalars, strict=True)]
    return {"tensor_scalars": with_columns(rule, its._replace(scalars=scalars))}


def advance(rule: BoundRule) -> dict[str, Array]:
    """`advance_shell.advance`."""
    kernel = rule.kernel
    assert isinstance(kernel, AdvanceKernel)
    bound, measured = rule.bound, kernel.measured
    entries = entries_of(rule)
    its = rule.its(rule.table[: entries.shape[0]])
    rest = np.uint32(2 if kernel.rule.over_all else 0)
    skip: Any = words(bound["found_inf"])[0] != 0 if kernel.checked else jnp.asarray(False)
    totals: list[Array] = []
    if measured is not None:
        names, partials = partials_of(rule, f"Partial{measured}")
        totals = measured_by_tensor(names, partials, None)
        skip = skip | (totals[names.index(BAD)] != 0) if kernel.checked else skip
    new: dict[str, Array] = {}
    if rule.transforms is None:
        is_active = jnp.where(skip, np.uint32(0), jnp.where(entries[:, 1] != 0, np.uint32(1), rest))
        its = its._replace(is_active=is_active)
    else:
        settled = measured if kernel.settles else None
        its = rule.transforms.begin(entries, its, totals, settled, rest, skip)
        if "scaler" in bound:
            scaler = floats(bound["scaler"])
            new["scaler"] = scaler.at[1].set(jnp.where(skip, np.float32(1), scaler[1]))
    if kernel.checked:
        found_inf = words(bound["found_inf"])
        new["found_inf"] = found_inf.at[0].set(np.uint32(0)).at[1].add(skip.astype(np.uint32))
    new["tensor_scalars"] = with_columns(rule, _advanced(rule, entries, its))
    return new


def _advanced(rule: BoundRule, entries: Array, its: Its) -> Its:
    """The scalars of those that take part, a step further."""
    groups = floats(rule.bound["hyper"]).reshape(-1, len(its.hyper))
    hyper = list(jnp.take(groups, entries[:, 0], axis=0, mode="clip").T)
    if rule_shell.has_function(rule.module, "advance"):
        values = {"s": rule.struct("Scalars", its.scalars), "h": rule.struct("Hyper", hyper)}
        scalars = list(rule.call("advance", values))
    else:
        scalars = [one + np.float32(1) for one in its.scalars]
    step = rule.kernel.rule.scalars.index("step")
    scalars[step] = jnp.where(its.is_active == 1, scalars[step], its.step)
    is_due = its.is_active != 0
    return its._replace(
        hyper=[jnp.where(is_due, one, old) for one, old in zip(hyper, its.hyper, strict=True)],
        scalars=[jnp.where(is_due, one, old) for one, old in zip(scalars, its.scalars, strict=True)],
    )
