"""Kernels in NumPy: map functions and forms printed as Python; `library` has what replaces cooperative kernels.

Loaded at the first kernel, so that a device can be opened and filled without the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ....runtime.factored import LineMeasureKernel, LineSettleKernel
from ....runtime.form_kernels import FormKernel
from ....runtime.kernels import CooperativeKernel, Kernel, SourceKernel
from ....runtime.map_kernels import FusedKernel, MapKernel
from ....runtime.option_kernels import OptionKernel
from ....runtime.rows import RowsKernel
from ....runtime.rule_kernels import AdvanceKernel, MeasureKernel, RoundKernel, SettleKernel, UpdateKernel
from ....runtime.transform_kernels import TransformMeasureKernel, TransformRowsKernel, TransformSettleKernel
from ....wgsl import rule_shell, shell
from ....wgsl.python_dialects import NUMPY_IN_DOUBLE, Dialect
from ....wgsl.transform_lookup import BAD
from ...arrays.numpy_arrays import runs
from ...arrays.products import Product, Strided, product_of
from . import maps, sparse
from .factored import bind_measure_lines, bind_settle_lines
from .forms import bind_form, replacement_of
from .library import CHUNK, MATMUL, REPLACEMENTS, Array
from .options import bind_options
from .packed import bind_packed
from .rules import BoundRule
from .transforms import bind_measure_transform, bind_rows_transform, bind_settle_transform, total

__all__ = ["bind_kernel"]


def bind_kernel(
    kernel: Kernel, arrays: Sequence[Array], parameters: bytes, dialect: Dialect = NUMPY_IN_DOUBLE
) -> Callable[[], None]:
    """Return a call that runs the kernel over these bytes; `dialect` is that of maps."""
    if isinstance(kernel, CooperativeKernel) and REPLACEMENTS[kernel.name] is MATMUL:
        return _bind_product(kernel, parameters, *arrays)
    if isinstance(kernel, MapKernel):
        return maps.bind_map(kernel, arrays, kernel.unpack(parameters), dialect)
    names = (name for name, _ in kernel.parameters)
    values = dict(zip(names, kernel.unpack(parameters), strict=True))
    match kernel:
        case FusedKernel():
            return maps.bind_fused(kernel, arrays, values, dialect)
        case FormKernel():
            return bind_form(kernel, arrays, values)
        case SourceKernel():
            return partial(replacement_of(kernel), values, *arrays)
        case UpdateKernel():
            return _bind_update(kernel, arrays)
        case RoundKernel():
            return _bind_round(kernel, arrays)
        case RowsKernel():
            return sparse.bind_rows(BoundRule(kernel, arrays), values)
        case AdvanceKernel():
            return _bind_advance(kernel, arrays)
        case TransformMeasureKernel():
            return bind_measure_transform(BoundRule(kernel, arrays), kernel, _chunks)
        case TransformSettleKernel():
            return bind_settle_transform(BoundRule(kernel, arrays), kernel)
        case TransformRowsKernel():
            return bind_rows_transform(BoundRule(kernel, arrays), kernel)
        case MeasureKernel():
            return _bind_measure(kernel, arrays)
        case SettleKernel():
            return _bind_settle(kernel, arrays)
        case LineMeasureKernel():
            return bind_measure_lines(BoundRule(kernel, arrays), kernel)
        case LineSettleKernel():
            return bind_settle_lines(BoundRule(kernel, arrays), kernel)
        case OptionKernel():
            return bind_options(kernel, arrays, values)
    return bind_packed(kernel, arrays, parameters, partial(bind_kernel, dialect=dialect))


def _bind_product(kernel: Kernel, parameters: bytes, a: Array, b: Array, c: Array) -> Callable[[], None]:
    """Return the call of the library. The views are remembered: to describe them takes as long as a small product."""
    left, right, result = _arrays_of_product(kernel, parameters, c.nbytes)
    return partial(
        np.matmul,
        np.ndarray(left.shape, np.float32, a, left.start, left.strides),
        np.ndarray(right.shape, np.float32, b, right.start, right.strides),
        out=np.ndarray(result, np.float32, c),
    )


@lru_cache(4096)
def _arrays_of_product(kernel: Kernel, parameters: bytes, nbytes: int) -> Product:
    """Return the operands with starts and strides in bytes, and the shape of the result, which has so many bytes."""
    names = (name for name, _ in kernel.parameters)
    values = dict(zip(names, kernel.unpack(parameters), strict=True))
    left, right, shape = product_of(values, nbytes // 4)
    return Product(_in_bytes(left), _in_bytes(right), shape)


def _in_bytes(view: Strided) -> Strided:
    return Strided(4 * view.start, view.shape, tuple(4 * stride for stride in view.strides))


# Optimizer kernels: the shells of `wgsl.*_shell`, over arrays that go by the names of the bindings.


def _own(value: Any) -> Any:
    """A value that stays when what it was taken from is overwritten: a function may pass its arguments through."""
    return value.copy() if isinstance(value, np.ndarray) and value.base is not None else value


def _bind_advance(kernel: AdvanceKernel, arrays: Sequence[Array]) -> Callable[[], None]:
    rule = BoundRule(kernel, arrays)
    groups = rule.bound["hyper"].view(np.float32).reshape(-1, len(rule.hyper_names))
    entries = rule.bound["tensors"].view(np.uint32).reshape(-1, rule_shell.ENTRY_WORDS)
    found_inf = rule.bound["found_inf"].view(np.uint32) if kernel.checked else np.zeros(2, np.uint32)
    step = rule.scalar_names.index("step")
    inactive = 2 if kernel.rule.over_all else 0
    measured = kernel.measured
    if measured is not None:
        names = shell.member_names(rule.module, f"Partial{measured}")
        partials = rule.bound["partials"].view(np.float32).reshape(-1, len(names))

    def all_measured() -> Any:
        return rule.functions[f"Partial{measured}"](*total(partials, names))

    def run() -> None:
        skip = bool(found_inf[0])
        if kernel.checked and measured is not None:
            skip |= bool(total(partials, names)[names.index(BAD)])
        if rule.transforms is None:
            is_active = np.where(entries[:, 1] != 0, 1, inactive) * (not skip)
        else:
            is_active = rule.transforms.begin(
                entries, all_measured, measured if kernel.settles else None, inactive, skip
            )
            if skip and "scaler" in rule.bound:
                rule.bound["scaler"].view(np.float32)[1] = 1
        active = np.flatnonzero(is_active)
        hyper, old = groups[entries[active, 0]], rule.scalars[active]
        steps = old[:, step].copy()
        if rule_shell.has_function(rule.module, "advance"):
            values = {"s": rule.struct("Scalars", old.T), "h": rule.struct("Hyper", hyper.T)}
            advanced = [_own(value) for value in rule.call("advance", values)]
            for column, value in zip(old.T, advanced, strict=True):
                column[:] = value
        else:
            old += np.float32(1)
        old[:, step] = np.where(is_active[active] == 1, old[:, step], steps)
        rule.scalars[active] = old
        rule.hyper[active] = hyper
        rule.is_active[:] = is_active
        found_inf[0] = 0
        found_inf[1] += skip

    return run


def _chunks(first: int, end: int) -> Iterator[slice]:
    for start in range(first, end, CHUNK):
        yield slice(start, min(start + CHUNK, end))


def _bind_update(kernel: UpdateKernel, arrays: Sequence[Array]) -> Callable[[], None]:
    rule = BoundRule(kernel, arrays)
    on_call = kernel.part not in rule_shell.STEP_PARTS
    keeping = rule.transforms if kernel.part == kernel.rule.gathering_part else None
    step = rule.scalar_names.index("step")

    def run() -> None:
        for tensor, first, end, gaps in rule.runs():
            is_due = bool(rule.scalars[tensor, step] if on_call else rule.is_active[tensor] == 1)
            if not (is_due or (keeping is not None and keeping.on[tensor] & 1)):
                continue
            shared, steps_taken = rule.of_tensor(tensor), int(rule.scalars[tensor, step])
            for part in _chunks(first, end):
                elements = rule.of_elements(part, is_due if keeping is not None else None)
                if not is_due:
                    continue
                updated = rule.call(kernel.part, {**shared, **elements})
                state = zip(rule.state_names, getattr(updated, "state", ()), strict=True)
                new = {name: _own(value) for name, value in state if name in kernel.changed_slots}
                rule.params.store(part, updated.param, steps_taken * (len(rule.slots) + 1) + len(rule.slots))
                for number, (name, slot) in enumerate(rule.slots.items()):
                    if name in new:
                        slot.store(part, new[name], steps_taken * len(rule.slots) + number)
            rule.clear(gaps)

    return run


def _bind_round(kernel: RoundKernel, arrays: Sequence[Array]) -> Callable[[], None]:
    rule = BoundRule(kernel, arrays)

    def run() -> None:
        for tensor, first, end in runs(rule.bound["blocks"]):
            if tensor + 1 < len(rule.is_active):  # the last one stands for tensors of others
                for part in _chunks(first, end):
                    rule.params.round(part)

    return run


def _bind_measure(kernel: MeasureKernel, arrays: Sequence[Array]) -> Callable[[], None]:
    rule = BoundRule(kernel, arrays)
    names = shell.member_names(rule.module, "Measured")
    partials = rule.bound["partials"].view(np.float32).reshape(-1, len(names))

    def run() -> None:
        partials[:] = 0
        for tensor, first, end in runs(rule.bound["blocks"]):
            if rule.is_active[tensor] != 1:
                continue
            shared = rule.of_tensor(tensor)
            for part in _chunks(first, end):
                measured = rule.call("measure", {**shared, **rule.of_elements(part)})
                row = partials[part.start // shell.BLOCK]
                for column, (name, values) in enumerate(zip(names, measured, strict=True)):
                    values = np.broadcast_to(values, part.stop - part.start)
                    row[column] = values.max() if name.startswith(rule_shell.MAXIMUM) else values.sum(dtype=np.float64)

    return run


def _bind_settle(kernel: SettleKernel, arrays: Sequence[Array]) -> Callable[[], None]:
    rule = BoundRule(kernel, arrays)
    names = shell.member_names(rule.module, "Measured")
    partials = rule.bound["partials"].view(np.float32).reshape(-1, len(names))
    entries = rule.bound["tensors"].view(np.uint32).reshape(-1, rule_shell.ENTRY_WORDS)

    def run() -> None:
        everything = total(partials, names) if kernel.rule.over_all else None
        for tensor in np.flatnonzero(rule.is_active):
            _, _, first, blocks, size = entries[tensor]
            columns = everything or total(partials[first : first + blocks], names)
            values = {"measured": rule.struct("Measured", columns), "size": np.float32(size)}
            rule.scalars[tensor] = rule.call("settle", {**rule.of_tensor(int(tensor)), **values})

    return run
