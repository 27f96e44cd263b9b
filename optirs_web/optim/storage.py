"""The types in which an optimizer stores its state and its parameters: `state_dtype`, `param_dtype` and `rounding`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..errors import UnsupportedError
from ..runtime.rules import Flags, Rule, Stored
from ..wgsl import param_storage, slot_storage
from .layout import Layout
from .options import SMALLEST_8_BIT, STATE_DTYPES

__all__ = ["check_rounding", "check_state_dtype", "stored_types"]


def check_state_dtype(
    requested: str | Mapping[str, str],
    rule: Rule,
    layout_type: type[Layout],
    tiny: Collection[str],
    optimizer: str,
) -> dict[str, str]:
    """Return the type of each slot of state, by name; slots that are not in it are float32.

    Args:
        requested: the option `state_dtype`: a type for all slots, or one for each by name.
        rule: the optimizer's.
        layout_type: the optimizer's.
        tiny: the slots whose values are too small for float16, such as squares.
        optimizer: the name of its class, for messages.

    Raises:
        UnsupportedError: all state of this optimizer is float32.
        ValueError: the type or the slot does not exist, or float16 is too narrow for it.
    """
    if requested == "float32":
        return {}
    slots, is_own_rule = layout_type.in_fewer_bits(rule.state), rule.text is not None
    names = [slot for slot in slots if is_own_rule or slot not in slot_storage.EXACT]
    if (slots or layout_type.more_state) and not names:
        raise UnsupportedError(f"{optimizer} keeps its state as float32")
    by_slot = dict(requested) if isinstance(requested, Mapping) else dict.fromkeys(names, requested)
    for slot, kind in by_slot.items():
        if kind not in STATE_DTYPES:
            raise ValueError(f"state_dtype must be one of {', '.join(STATE_DTYPES)}, not {kind!r}")
        if slot not in (slots if kind == "float32" else names):
            raise ValueError(f"state_dtype names '{slot}'; {optimizer} has {', '.join(names) or 'none'}")
        if kind == "float16" and not is_own_rule and (slot in tiny or slot.endswith(slot_storage.NOT_NEGATIVE)):
            if by_slot != requested:
                by_slot[slot] = "bfloat16"
                continue
            raise ValueError(f"float16 has no numbers below 6e-8, which '{slot}' needs; bfloat16 has")
    return by_slot


def check_rounding(param_dtype: str, rounding: str | None, is_sparse: bool, optimizer: str) -> str:
    """Return how parameters are rounded, as `wgsl.param_storage` names it; "" for float32.

    Raises:
        ValueError: the type or the rounding does not exist, or nothing is rounded.
        UnsupportedError: the optimizer, whose gradients are sparse, keeps its parameters as float32.
    """
    if param_dtype not in ("float32", "bfloat16"):
        raise ValueError(f"param_dtype must be float32 or bfloat16, not {param_dtype!r}")
    if rounding not in (None, *param_storage.ROUNDINGS):
        raise ValueError(f"rounding must be one of {', '.join(param_storage.ROUNDINGS)}, not {rounding!r}")
    if param_dtype == "float32":
        if rounding is not None:
            raise ValueError(f"rounding={rounding!r} needs param_dtype='bfloat16': float32 parameters are not rounded")
        return ""
    if is_sparse:
        raise UnsupportedError(f"{optimizer} keeps its parameters as float32")
    return rounding or "master"


def stored_types(
    rule: Rule, layout_type: type[Layout], flags: Flags, size: int, state_dtype: Mapping[str, str], rounding: str
) -> Stored:
    """Return how the state of a parameter of `size` elements, and the parameter, are stored, where not as float32."""
    requested = {slot: state_dtype.get(slot, "float32") for slot in layout_type.in_fewer_bits(rule.slots(flags))}
    kinds = {
        slot: slot_storage.kind_of(slot, kind, is_own_rule=rule.text is not None)
        for slot, kind in requested.items()
        if kind != "float32" and not (kind == "8bit" and size < SMALLEST_8_BIT)
    }
    return (*kinds.items(), *([(param_storage.PARAM, rounding)] if rounding else []))
