"""Rules applied to parameters or gradients in place, outside an optimizer, by a few dispatches for all of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..errors import ShapeError
from ..runtime.arena import Arena
from ..runtime.buffer import Buffer, View
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32
from ..runtime.program import NotReadyError
from ..runtime.rules import Flags, Rule
from ..tensors import Parameter, Tensor, empty
from .arenas import move_into_arenas
from .layout import Layout

__all__ = ["GradLayout", "InPlace", "in_place"]

_FLAGS: Flags = (("maximize", False),)
_KEPT = 16


class GradLayout(Layout):
    """A layout whose rule changes gradients: its `param` is an element of a gradient."""

    @staticmethod
    def _params_of(arena: Arena) -> Buffer:
        return arena.grads


class InPlace:
    """A rule over some parameters; made by `in_place`, once for each."""

    def __init__(
        self,
        rule: Rule,
        params: Sequence[Parameter],
        layout_type: Callable[..., Layout] = Layout,
        rule_flags: Flags = (),
    ) -> None:
        flags = [tuple(sorted((*_FLAGS, *rule_flags)))] * len(params)
        move_into_arenas(params, flags)
        self.layout = layout_type(rule, params, [0] * len(params), 1, flags, False)
        self.homes = [param._home for param in params]
        self.params = [weakref.ref(param) for param in params]

    def fits(self, params: Sequence[Parameter]) -> bool:
        """Return whether it was made for these parameters, and they have not been moved since."""
        entries = zip(self.params, params, self.homes, strict=True)
        return all(known_param() is param and param._home is home for known_param, param, home in entries)

    def run(self, live: Sequence[bool], hyper: Mapping[str, float]) -> None:
        """Apply the rule to the live parameters."""
        with self.layout.device.turn():
            self._run(live, hyper)

    def _run(self, live: Sequence[bool], hyper: Mapping[str, float]) -> None:
        self.layout.set_hyper([hyper])
        recording = self.layout.device.recording
        if recording is not None:
            recording.before_replay.append(partial(self.layout.set_hyper, [hyper]))
        self.layout.dispatch(live)

    def scalar(self, name: str) -> Tensor:
        """Return a copy of a scalar of the first tensor."""
        view: View = self.layout.tensor_views([name])[0][name]
        result = empty((), FLOAT32, self.layout.device)
        self.layout.device.copy(view, result.view)
        return result


def _prepare(rule: Rule, params: Sequence[Parameter], layout_type: Callable[..., Layout], flags: Flags) -> None:
    in_place(rule, params, layout_type, flags)


_instances: dict[tuple[Any, ...], InPlace] = {}


def in_place(
    rule: Rule, params: Sequence[Parameter], layout_type: Callable[..., Layout] = Layout, flags: Flags = ()
) -> InPlace:
    """Return the rule over these parameters, made once.

    Args:
        rule: the rule.
        params: all parameters.
        layout_type: the layout that runs it.
        flags: the rule's overrides.

    Raises:
        ShapeError: they are on different devices.
        TypeError: one is not a parameter.
    """
    for param in params:
        if not isinstance(param, Parameter):
            raise TypeError(f"expected Parameters, not {type(param).__name__}")
    devices = list(dict.fromkeys(param.device for param in params))
    if len(devices) > 1:
        raise ShapeError(f"the parameters are on different devices: {', '.join(map(str, devices))}")
    key = (rule, layout_type, flags, *map(id, params))
    with devices[0].turn():
        return _instance(key, devices[0], params)


def _instance(key: tuple[Any, ...], device: Device, params: Sequence[Parameter]) -> InPlace:
    rule, layout_type, flags = key[:3]
    instance = _instances.get(key)
    if instance is not None and instance.fits(params):
        return instance
    if device.recording is not None:  # making it moves parameters
        raise NotReadyError(partial(_prepare, rule, list(params), layout_type, flags))
    new_instance = InPlace(rule, params, layout_type, flags)
    for other_key, old in list(_instances.items()):
        if other_key == key or any(param() is None for param in old.params):
            _instances.pop(other_key, None)
    while len(_instances) >= _KEPT:
        _instances.pop(next(iter(list(_instances))), None)
    _instances[key] = new_instance
    return new_instance
