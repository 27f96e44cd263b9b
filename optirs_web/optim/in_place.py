"""Rules over parameters or their gradients where they lie, outside an optimizer: a few dispatches for all of them."""

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
from .layout import Layout, move_into_arenas

__all__ = ["GradLayout", "InPlace", "in_place"]

_FLAGS: Flags = (("maximize", False),)
_KEPT = 16


class GradLayout(Layout):
    """A layout whose rule changes gradients: `param` is one of them."""

    @staticmethod
    def _params_of(arena: Arena) -> Buffer:
        return arena.grads


class InPlace:
    """A rule over some parameters; see `in_place`, which makes each once."""

    def __init__(
        self,
        rule: Rule,
        params: Sequence[Parameter],
        layout_type: Callable[..., Layout] = Layout,
        its_flags: Flags = (),
    ) -> None:
        flags = [tuple(sorted((*_FLAGS, *its_flags)))] * len(params)
        move_into_arenas(params, flags)
        self.layout = layout_type(rule, params, [0] * len(params), 1, flags, False)
        self.homes = [one._home for one in params]
        self.params = [weakref.ref(one) for one in params]

    def fits(self, params: Sequence[Parameter]) -> bool:
        """It was made for these, and they lie where they did."""
        alike = zip(self.params, params, self.homes, strict=True)
        return all(known() is one and one._home is home for known, one, home in alike)

    def run(self, live: Sequence[bool], hyper: Mapping[str, float]) -> None:
        """Apply the rule to those that are live."""
        with self.layout.device.turn():
            self._run(live, hyper)

    def _run(self, live: Sequence[bool], hyper: Mapping[str, float]) -> None:
        self.layout.set_hyper([hyper])
        recording = self.layout.device.recording
        if recording is not None:
            recording.before_replay.append(partial(self.layout.set_hyper, [hyper]))
        self.layout.dispatch(live)

    def scalar(self, name: str) -> Tensor:
        """A copy of a scalar of the first tensor."""
        view: View = self.layout.places([name])[0][name]
        result = empty((), FLOAT32, self.layout.device)
        self.layout.device.copy(view, result.view)
        return result


def _prepare(rule: Rule, params: Sequence[Parameter], layout_type: Callable[..., Layout], flags: Flags) -> None:
    in_place(rule, params, layout_type, flags)


_made: dict[tuple[Any, ...], InPlace] = {}


def in_place(
    rule: Rule, params: Sequence[Parameter], layout_type: Callable[..., Layout] = Layout, flags: Flags = ()
) -> InPlace:
    """The rule over these parameters, made once.

    Args:
        rule: what is done.
        params: all parameters.
        layout_type: what does it.
        flags: the rule's overrides.

    Raises:
        ShapeError: they lie on different devices.
        TypeError: one is not a parameter.
    """
    for one in params:
        if not isinstance(one, Parameter):
            raise TypeError(f"expected Parameters, not {type(one).__name__}")
    devices = list(dict.fromkeys(one.device for one in params))
    if len(devices) > 1:
        raise ShapeError(f"the parameters are on different devices: {', '.join(map(str, devices))}")
    key = (rule, layout_type, flags, *map(id, params))
    with devices[0].turn():
        return _known(key, devices[0], params)


def _known(key: tuple[Any, ...], device: Device, params: Sequence[Parameter]) -> InPlace:
    rule, layout_type, flags = key[:3]
    known = _made.get(key)
    if known is not None and known.fits(params):
        return known
    if device.recording is not None:  # making it moves parameters
        raise NotReadyError(partial(_prepare, rule, list(params), layout_type, flags))
    made = InPlace(rule, params, layout_type, flags)
    for other, old in list(_made.items()):
        if other == key or any(param() is None for param in old.params):
            _made.pop(other, None)
    while len(_made) >= _KEPT:
        _made.pop(next(iter(list(_made))), None)
    _made[key] = made
    return made
