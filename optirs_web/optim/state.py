"""State dicts of optimizers: read from a layout, checked before anything is changed, written to a layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..errors import CheckpointError, OptirsError, quoted
from ..hostdata import host_data
from ..runtime.dtypes import FLOAT32
from ..runtime.rules import KEPT
from ..tensors import Parameter
from ..wgsl.param_storage import NAMES
from .layout import Layout

__all__ = ["KIND", "State", "check", "check_kind", "read", "shape_of", "write"]

KIND = "optimizer"
"""The entry of a state dict that names the class of its optimizer; torch's state dicts have none, and ignore it."""

_ANYTIME = (KEPT, *NAMES)
"""State that exists before the first step too."""

_MOST_STEPS = 1e30  # far beyond what float32 can count

State = dict[int, dict[str, Any]]
"""By number of the parameter, then by name: arrays, and scalars such as "step"."""


def read(
    layout: Layout, params: Sequence[Parameter], scalar_names: Sequence[str], contents: Mapping[str, memoryview]
) -> State:
    """Return the state of every parameter that has taken a step, from the contents of `layout.state_views`."""
    state: State = {}
    slots, counters = layout.state_in(contents), layout.scalars.read_counters(contents["scalars"])
    for number, (param, scalars) in enumerate(zip(params, layout.scalars.read(contents["scalars"]), strict=True)):
        counted, tensor_slots = counters[number], slots[number]
        entry = {name: _host_scalar(value) for name, value in counted.items() if any(counted.values())}
        if KEPT in tensor_slots and not any(counted.values()):
            del tensor_slots[KEPT]
        if any(scalars.values()):
            entry.update({name: _host_scalar(scalars[name]) for name in scalar_names})
        else:
            tensor_slots = {name: raw for name, raw in tensor_slots.items() if name in _ANYTIME}
        entry.update(
            {name: _host_array(raw, layout.state_shape(name, param.shape)) for name, raw in tensor_slots.items()}
        )
        if entry:
            state[number] = entry
    return state


def write(layout: Layout, scalar_names: Sequence[str], state: Mapping[int, Mapping[str, Any]]) -> None:
    """Write the state; a parameter without an entry gets the initial state."""
    rows = []
    slots = {}
    for number in range(len(layout.groups)):
        entry = state.get(number, {})
        counted = {name: float(entry[name]) for name in layout.rule.counters if name in entry}
        # A rule without "step" in its state only needs to know whether there was a step.
        has_begun = float(any(value is not None for name, value in entry.items() if name not in (*counted, *_ANYTIME)))
        rows.append({"step": has_begun, **{name: float(entry.get(name, 0.0)) for name in scalar_names}, **counted})
        slot_values = {name: value for name, value in entry.items() if name not in (*scalar_names, *counted)}
        values = {name: value for name, value in slot_values.items() if value is not None}
        slots[number] = {name: host_data(value, FLOAT32).content for name, value in values.items()}
    layout.write_state(slots)
    layout.write_scalars(rows)


def check_kind(state_dict: Any, optimizer: object) -> None:
    """Check that a state dict is of the optimizer's class, if it names one.

    Raises:
        CheckpointError: it names another.
    """
    kind = state_dict.get(KIND) if isinstance(state_dict, Mapping) else None
    if kind not in (None, type(optimizer).__name__):
        raise CheckpointError(
            f"the state dict holds the state of {quoted(kind)}, not that of {type(optimizer).__name__}"
        )


def check(
    state_dict: Any,
    groups: Sequence[Mapping[str, Any]],
    is_option: Callable[[str], bool],
    names: Sequence[str],
    scalar_names: Sequence[str],
    shape_of_state: Callable[[str, tuple[int, ...]], tuple[int, ...]],
    counters: Collection[str] = (),
) -> tuple[list[dict[str, Any]], State]:
    """Check a state dict, and return the options of each group and the state by number.

    `counters` are the counts of transforms, scalars that an entry may lack, and may consist of.

    Raises:
        CheckpointError: it does not fit.
    """
    try:
        saved = [dict(group) for group in state_dict["param_groups"]]
        entries = {key: dict(entry) for key, entry in state_dict["state"].items()}
        keys = [list(group["params"]) for group in saved]
        numbers = {key: number for number, key in enumerate(key for group in keys for key in group)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError('a state dict has "state" and "param_groups", which have "params"') from error
    if len(saved) != len(groups):
        raise CheckpointError("loaded state dict has a different number of parameter groups")
    if [len(group_keys) for group_keys in keys] != [len(group["params"]) for group in groups]:
        raise CheckpointError(
            "loaded state dict has a parameter group that doesn't match the size of optimizer's group"
        )
    params = [param for group in groups for param in group["params"]]
    if all(group.get("param_names") for group in (*groups, *saved) if group["params"]):
        numbers = _numbers_by_name(groups, saved)
    for key, entry in entries.items():
        if key not in numbers:
            raise CheckpointError(f"the state dict has state for parameter {key!r}, which no group holds")
        needed = scalar_names if set(entry) - {*counters, *_ANYTIME} or not entry else ()
        present = (*needed, *(name for name in counters if name in entry))
        known_names = (*names, *NAMES, *counters, *([KEPT] if counters else []))
        _check_entry(key, entry, params[numbers[key]].shape, known_names, present, shape_of_state)
    options = [{name: _option(value) for name, value in group.items() if is_option(name)} for group in saved]
    return options, {numbers[key]: entry for key, entry in entries.items()}


def _numbers_by_name(groups: Sequence[Mapping[str, Any]], saved: Sequence[Mapping[str, Any]]) -> dict[Any, int]:
    """Return for each parameter of the saved groups the number of the parameter of that name."""
    ours = {name: number for number, name in enumerate(name for group in groups for name in group["param_names"])}
    pairs = [(key, name) for group in saved for key, name in zip(group["params"], group["param_names"], strict=False)]
    missing = sorted(set(ours) ^ {name for _, name in pairs})
    if missing:
        raise CheckpointError(
            f"the state dict and the optimizer do not both have parameters named {', '.join(missing)}"
        )
    return {key: ours[name] for key, name in pairs}


def _check_entry(
    key: Any,
    entry: Mapping[str, Any],
    shape: tuple[int, ...],
    names: Sequence[str],
    scalar_names: Sequence[str],
    shape_of_state: Callable[[str, tuple[int, ...]], tuple[int, ...]],
) -> None:
    unknown = ", ".join(sorted(map(str, set(entry) - set(names))))
    if unknown:
        raise CheckpointError(f"the state of parameter {key!r} has {unknown}, which this optimizer does not have")
    for name in scalar_names:
        try:
            value = float(entry[name])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"the state of parameter {key!r} has no usable '{name}'") from error
        if not abs(value) <= _MOST_STEPS or (name == "step" and value < 0):
            raise CheckpointError(f"the state of parameter {key!r} has {name} = {value}")
    for name in set(entry) - set(scalar_names):
        if entry[name] is None:
            continue
        try:
            shape_ = host_data(entry[name], FLOAT32).shape
        except (OptirsError, OverflowError, TypeError, ValueError) as error:
            raise CheckpointError(f"'{name}' of parameter {key!r} is not a float32 array: {error}") from error
        if shape_ != shape_of_state(name, shape):
            raise CheckpointError(f"'{name}' of parameter {key!r} has the shape {shape_}, the parameter {shape}")


def _option(value: Any) -> Any:
    """Return an option with tuples for lists, as JSON has none, and numbers for torch's tensors of one element."""
    if hasattr(value, "item") and math.prod(getattr(value, "shape", ())) == 1:
        return value.item()
    return tuple(value) if isinstance(value, list) else value


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a tensor, an array or nested lists."""
    shape = getattr(value, "shape", None)
    return tuple(shape) if shape is not None else host_data(value, FLOAT32).shape


def _host_array(raw: memoryview, shape: tuple[int, ...]) -> Any:
    """Return NumPy's array, or where NumPy is absent a memoryview of that shape."""
    try:
        import numpy as np
    except ImportError:
        return FLOAT32.cast(raw, shape)
    return np.frombuffer(raw, np.float32).reshape(shape).copy()


def _host_scalar(value: float) -> Any:
    try:
        import numpy as np
    except ImportError:
        return value
    return np.asarray(value, np.float32)
