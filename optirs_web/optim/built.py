"""The layout of an optimizer on the device, built from its groups and rebuilt when they or the transforms change."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UnsupportedError
from ..runtime.program import NotReadyError
from ..runtime.rules import Flags, Stored
from ..tensors import Parameter
from ..wgsl import param_storage, slot_storage
from .arenas import move_into_arenas
from .groups import Grouped
from .layout import Layout, Slots
from .options import SMALLEST_8_BIT, STATE_DTYPES

if TYPE_CHECKING:
    from .transforms import Transform

__all__ = ["Built"]

_NO_OPTIONS = ("params", "param_names")
_IMMUTABLE = {bool, float, int, str, tuple, type(None)}
"""Types of options that only another object changes; those of lists, arrays and tensors change in place."""


class Built(Grouped):
    """An optimizer with a layout on the device that fits its groups."""

    layout_type: ClassVar[type[Layout]] = Layout
    takes_dense: ClassVar[bool] = True
    """Gradients may be tensors; otherwise all are `SparseRows`."""

    fixed: ClassVar[tuple[str, ...]] = ()
    """Flags that determine the shape of state."""

    tiny: ClassVar[tuple[str, ...]] = ()
    """State whose values are too small for float16, such as squares."""

    _layout: Layout | None
    _state_dtype: dict[str, str]
    _rounding: str
    _transforms: list[Transform]
    _is_scaled: bool
    _skip_nonfinite: bool
    _checked_options: Sequence[Mapping[str, Any]] = ()  # the groups' options when they were last checked
    _refreshed: Sequence[object] = ()  # the groups' content when it was last written; () if it can change in place
    _unused_slots: Slots  # state that is unused since a change of flags

    def _build(self) -> None:
        params, group_flags = self._params(), self._flags()
        if params[0].device.recording is not None:
            raise UnsupportedError("make optimizers and parameter groups outside a compiled step")
        groups = [number for number, group in enumerate(self.param_groups) for _ in group["params"]]
        flags = [group_flags[number] for number in groups]
        stored = [self._stored(param, param_flags) for param, param_flags in zip(params, flags, strict=True)]
        move_into_arenas(params, list(zip(flags, stored, strict=True)))
        rule, transforms = self.rule, self._transforms
        if self._is_scaled:
            from .transforms import unscale

            transforms = [unscale(), *transforms]
        if transforms:
            from .pipeline import rule_with

            rule = rule_with(rule, transforms)
        more = {"stored": stored} if any(stored) else {}
        layout = self.layout_type(rule, params, groups, len(self.param_groups), flags, self._skip_nonfinite, **more)
        layout.use(transforms, params)
        if self._layout is not None:
            self._layout.retire()
        self._layout = layout
        self._refreshed = ()
        self._built_flags = group_flags
        self._built_params = self._param_ids()

    def _checked_state_dtype(self, requested: str | Mapping[str, str]) -> dict[str, str]:
        """Check `state_dtype`, and return the type of each slot, by name."""
        known, is_own = self.layout_type.in_fewer_bits(self.rule.state), self.rule.text is not None
        names = [name for name in known if is_own or name not in slot_storage.EXACT]
        if (known or self.layout_type.more_state) and not names and requested != "float32":
            raise UnsupportedError(f"{type(self).__name__} keeps its state as float32")
        by_slot = dict(requested) if isinstance(requested, Mapping) else dict.fromkeys(names, requested)
        for slot, kind in by_slot.items():
            if kind not in STATE_DTYPES:
                raise ValueError(f"state_dtype must be one of {', '.join(STATE_DTYPES)}, not {kind!r}")
            if slot not in (known if kind == "float32" else names):
                raise ValueError(f"state_dtype names '{slot}'; {type(self).__name__} has {', '.join(names) or 'none'}")
            if kind == "float16" and not is_own and (slot in self.tiny or slot.endswith(slot_storage.NOT_NEGATIVE)):
                if by_slot != requested:
                    by_slot[slot] = "bfloat16"
                    continue
                raise ValueError(f"float16 has no numbers below 6e-8, which '{slot}' needs; bfloat16 has")
        return by_slot

    def _checked_rounding(self, param_dtype: str, rounding: str) -> str:
        """Check `param_dtype` and `rounding`, and return the rounding as in `wgsl.param_storage`; "" for float32."""
        if param_dtype not in ("float32", "bfloat16"):
            raise ValueError(f"param_dtype must be float32 or bfloat16, not {param_dtype!r}")
        if rounding not in param_storage.ROUNDINGS:
            raise ValueError(f"rounding must be one of {', '.join(param_storage.ROUNDINGS)}, not {rounding!r}")
        if param_dtype == "float32":
            return ""
        if not self.takes_dense:
            raise UnsupportedError(f"{type(self).__name__} keeps its parameters as float32")
        return rounding

    def _stored(self, param: Parameter, flags: Flags) -> Stored:
        """Return how the state of a parameter, and the parameter, are stored, where not as float32."""
        slots = self.layout_type.in_fewer_bits(self.rule.slots(flags))
        requested = {slot: self._state_dtype.get(slot, "float32") for slot in slots}
        if param.size < SMALLEST_8_BIT:
            requested = {slot: kind for slot, kind in requested.items() if kind != "8bit"}
        is_own = self.rule.text is not None
        kinds = {
            slot: slot_storage.kind_of(slot, kind, is_own_rule=is_own)
            for slot, kind in requested.items()
            if kind != "float32"
        }
        return (*kinds.items(), *([(param_storage.PARAM, self._rounding)] if self._rounding else []))

    def _param_ids(self) -> list[list[int]]:
        return [[id(param) for param in group["params"]] for group in self.param_groups]

    def _rebuild(self) -> None:
        """Build another layout with the same state."""
        before = self._built
        self._build()
        self._built.take_over(before, self._unused_slots)
        self._round_params()
        self._unused_slots = {**self._unused_slots, **before.slots()}

    def _round_params(self) -> None:
        """Round the parameters to bfloat16, if `param_dtype` is that."""
        if self._rounding:
            self._built.round_params()
            for param in self._params():
                param._version += 1

    @property
    def _built(self) -> Layout:
        assert self._layout is not None
        return self._layout

    def _make_scaled(self) -> None:
        """Add the scale of the loss to the layout."""
        if not self._is_scaled:
            if self._built.device.recording is not None:
                raise NotReadyError(self._make_scaled)
            self._is_scaled = True
            self._rebuild()

    def _refresh(self) -> None:
        """Write the options of the groups to the device, if they have changed."""
        self._refresh_options()
        self._built.copy_rates()

    def _refresh_options(self) -> None:
        """Write the options that are no tensors, as a recorded step copies tensors itself."""
        held: list[object] = [self._schedules]
        for group in self.param_groups:
            held += (*group, *group.values(), *group["params"])
        if len(held) == len(self._refreshed) and all(map(operator.is_, held, self._refreshed)):
            return
        options = [
            {name: _compared(value) for name, value in group.items() if name != "params"} for group in self.param_groups
        ]
        if options != self._checked_options:
            for group in self.param_groups:
                self._check(group)
            self._checked_options = options
        if self._param_ids() != self._built_params:
            raise UnsupportedError(
                "parameters in param_groups cannot be replaced; use add_param_group, or a new optimizer"
            )
        if self._flags() != self._built_flags:
            for name in self.fixed:
                if [group[name] for group in self.param_groups] != [dict(flags)[name] for flags in self._built_flags]:
                    raise UnsupportedError(f"{name} cannot change in training; make a new optimizer")
            if self._built.device.recording is not None:  # a rebuild moves the state
                raise NotReadyError(self._refresh)
            self._rebuild()
        if self._schedules is not None:
            self._schedules.notice()
        self._set_hyper()
        values = [value for group in self.param_groups for name, value in group.items() if name not in _NO_OPTIONS]
        kinds = {*map(type, values)}
        if kinds <= _IMMUTABLE and self._schedules is None and self._built._pipeline is None:
            self._refreshed = held

    def _set_hyper(self) -> None:
        self._refreshed = ()
        self._built.follow({number: lr.view for number, lr in self._rates().items()})
        self._built.set_hyper([self.hyper(group) for group in self.param_groups])


def _compared(option: Any) -> Any:
    """Return a value by which options are compared: the identity of arrays and tensors, whose == is elementwise."""
    return tuple(option) if isinstance(option, list) else id(option) if hasattr(option, "shape") else option
