"""Optimizers around another optimizer, and state that begins as a copy of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from ..errors import CheckpointError, UnsupportedError
from ..runtime.buffer import View
from ..runtime.program import NotReadyError
from ..runtime.rules import Rule
from ..tensors import Parameter, Tensor
from . import state
from .host_driven import HostDriven
from .layout import Layout
from .optimizer import Optimizer

__all__ = ["Anchored", "Wrapper"]

_INNER = "inner."


class Anchored(Optimizer):
    """An optimizer with a slot of state that begins as a copy of the parameters.

    The copy is made before the first step: values assigned until then count.
    """

    anchor: ClassVar[str]
    """The name of the slot."""

    def _build(self) -> None:
        if self._layout is None:
            self._anchored: set[int] = set()  # numbers of the parameters whose slot is filled
        super()._build()

    def _checked_state_dtype(self, requested: str | Mapping[str, str]) -> dict[str, str]:
        return {**super()._checked_state_dtype(requested), self.anchor: "float32"}  # copies of parameters

    def _anchor(self) -> None:
        """Fill the slots that are not filled yet."""
        params, slots = self._params(), self._built.slots()
        missing = set(range(len(params))) - self._anchored
        if missing and self._built.device.recording is not None:
            raise NotReadyError(self._anchor)
        for number in missing:
            params[number].device.copy(params[number].view, slots[number, self.anchor])
        self._anchored |= missing

    def _write_state(self, new_state: Mapping[int, Mapping[str, Any]]) -> None:
        super()._write_state(new_state)  # slots that the state lacks become zero
        self._anchored = {number for number, entry in new_state.items() if entry.get(self.anchor) is not None}


class Wrapper(Optimizer):
    """An optimizer around another one, with the same parameters and the same groups.

    A group has the options of the inner optimizer and, with a prefix, those of this one: change `lr` in the groups of
    either. The state dict has the state of both.

    Attributes:
        optimizer: the inner optimizer.
    """

    wrapped_rule: ClassVar[Rule]
    prefix: ClassVar[str]
    """The prefix of its options in a group, as the inner optimizer may have options of the same names."""
    is_saved: ClassVar[bool] = True
    """True if the wrapper's own state is needed between steps, so that it is part of the state dict."""

    def __init__(self, optimizer: Any, options: Mapping[str, Any], *, skip_nonfinite: bool = False) -> None:
        name = type(self).__name__
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, HostDriven):
            kind: type[Any] = optimizer if isinstance(optimizer, type) else type(optimizer)
            description = f"{'the class' if kind is optimizer else 'a'} {kind.__name__}"
            raise TypeError(f"{name} wraps an optimizer with a rule, as in {name}(SGD(params)), not {description}")
        if optimizer._rounding:
            raise UnsupportedError(f"{name} moves parameters in float32: wrap one that does the same")
        self.optimizer: Optimizer = optimizer
        self.rule = self.wrapped_rule  # type: ignore[misc]
        self._own = own = {self.prefix + name: value for name, value in options.items()}
        chain: list[Optimizer] = [optimizer]
        while isinstance(inner := chain[-1], Wrapper):
            chain.append(inner.optimizer)
            if not (self.is_saved or inner.is_saved):
                raise UnsupportedError(f"{name} steps without a closure, and {type(inner).__name__} within needs one")
        inner_names = {
            key
            for inner_optimizer in chain
            for key in (*inner_optimizer.defaults, *inner_optimizer.rule.state, *inner_optimizer.scalars_in_state)
        }
        if twice := sorted(inner_names & {*own, *self._state_names}):
            raise UnsupportedError(f"{name} cannot wrap what has {', '.join(twice)} too")
        shared = ("params", "param_names", "maximize")
        groups = [{name: group[name] for name in shared if name in group} for group in optimizer.param_groups]
        super().__init__(groups, own, skip_nonfinite=skip_nonfinite)
        for theirs in optimizer.param_groups:
            theirs.update(own)
        self.param_groups = optimizer.param_groups
        self.defaults = {**optimizer.defaults, **own}

    # Options.

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise ValueError if one of the options of this optimizer is out of range."""

    def _unprefixed_options(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """Return its options in a group, by the rule's names of them."""
        return {name.removeprefix(self.prefix): group.get(name, value) for name, value in self._own.items()}

    def validate(self, group: Mapping[str, Any]) -> None:
        self.check_options(self._unprefixed_options(group))

    def flags(self, group: Mapping[str, Any]) -> dict[str, bool]:
        return super().flags(self._unprefixed_options(group))

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        return super().hyper(self._unprefixed_options(group))

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        own = _only(group, set(self._own))
        if fault := self._fault(own):
            raise fault
        self.optimizer.add_param_group(_only(group, set(group) - set(own)))
        self.param_groups[-1].update(own)
        self._adopt()

    def _adopt(self) -> None:
        """Add the groups that were added to the inner optimizer."""
        if len(self._built_params) < len(self.param_groups):
            if super()._built.device.recording is not None:
                raise NotReadyError(self._adopt)
            for group in self.param_groups:
                group.update({**self._own, **group})
            before, self._built_params = self._built_params, self._param_ids()  # `_built` would adopt them again
            try:
                self._rebuild()
            except BaseException:
                self._built_params = before
                raise

    @property
    def _built(self) -> Layout:
        self._adopt()
        return super()._built

    def _refresh_options(self) -> None:
        self._adopt()
        super()._refresh_options()

    def _dispatch_all(self) -> None:
        """Apply the rule to every parameter, with a gradient or without."""
        self._refresh()
        params = self._params()
        live = [True] * len(params)
        if self._built.device.recording is not None:
            self._built.device.recording.before_replay.append(partial(self._before_replay, self._built, params))
        self._built.dispatch(live)
        self._note_change(live)

    # Scaled losses, and checks, are the inner optimizer's.

    def scaled_step(self, scaler: View | None, **kwargs: Any) -> Any:
        raise UnsupportedError(
            f"{type(self).__name__} computes several gradients in a step, but a GradScaler checks one; leave it out"
        )

    def unscale_grads(self, scaler: View) -> None:
        self.optimizer.unscale_grads(scaler)

    @property
    def skipped_steps(self) -> int:
        return self.optimizer.skipped_steps

    def check_finite(self) -> None:
        self.optimizer.check_finite()

    async def check_finite_async(self) -> None:
        await self.optimizer.check_finite_async()

    # State: one dict for both.

    @property
    def state(self) -> dict[Parameter, dict[str, Tensor]]:
        """The state of both optimizers for each parameter, as tensors over its memory."""
        inner = self.optimizer.state
        own = super().state if self.is_saved else {}
        return {param: {**entry, **own.get(param, {})} for param, entry in inner.items()}

    def state_views(self) -> dict[str, View]:
        inner = {_INNER + name: view for name, view in self.optimizer.state_views().items()}
        return {**super().state_views(), **inner}

    def state_reader(self) -> Callable[[Mapping[str, memoryview]], dict[str, Any]]:
        make_own, make_inner = super().state_reader(), self.optimizer.state_reader()  # which has the adopted groups

        def make(contents: Mapping[str, memoryview]) -> dict[str, Any]:
            inner_contents = {
                name.removeprefix(_INNER): raw for name, raw in contents.items() if name.startswith(_INNER)
            }
            state_dict, own = make_inner(inner_contents), make_own(contents)["state"] if self.is_saved else {}
            numbers = sorted({*state_dict["state"], *own})
            merged = {number: {**state_dict["state"].get(number, {}), **own.get(number, {})} for number in numbers}
            return {**state_dict, "state": merged}

        return make

    def recovery_views(self) -> Mapping[str, View]:
        return super().state_views()  # the inner optimizer keeps its own

    def keeper(self) -> Callable[[Mapping[str, memoryview]], None]:
        make = super().state_reader()
        return lambda contents: setattr(self, "_snapshot", make(contents)["state"])

    def __getstate__(self) -> dict[str, Any]:
        content = super().__getstate__()
        names = self._state_names
        return {**content, "_state": {number: _only(entry, names) for number, entry in content["_state"].items()}}

    @property
    def _state_names(self) -> set[str]:
        return {*self.rule.state, *self.scalars_in_state} if self.is_saved else set()

    def _separated(self, state: Mapping[Any, Any]) -> tuple[dict[Any, dict[str, Any]], dict[Any, dict[str, Any]]]:
        """Return the entries of a state dict for this optimizer, and those for the inner one."""
        names = self._state_names
        entries = {key: dict(entry) for key, entry in state.items()}
        own = {key: _only(entry, names) for key, entry in entries.items() if names & set(entry)}
        inner = {
            key: _only(entry, set(entry) - names) for key, entry in entries.items() if set(entry) - names or not entry
        }
        return own, inner

    def _before_state_dict(self) -> None:
        super()._before_state_dict()
        self.optimizer._before_state_dict()

    def _after_state_dict(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Call the inner optimizer's hooks with its part of the state dict, as loading does, and then its own."""
        own, inner = self._separated(state_dict["state"])
        changed = self.optimizer._after_state_dict({**state_dict, "state": inner})
        inner = changed.get("state", {})
        numbers = [key for key in {**state_dict["state"], **inner} if key in own or key in inner]
        merged = {key: {**inner.get(key, {}), **own.get(key, {})} for key in numbers}
        return super()._after_state_dict({**changed, "state": merged})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        state_dict = self._hooks.before_load(self, state_dict)
        state.check_kind(state_dict, self)
        names = self._state_names
        try:
            own, inner = self._separated(state_dict["state"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError('a state dict has "state" and "param_groups", which have "params"') from error
        try:
            options, own_state = state.check(
                {**state_dict, "state": own},
                self.param_groups,
                self._own.__contains__,
                tuple(names),
                self.scalars_in_state if self.is_saved else (),
                self._built.state_shape,
            )
            for group_options in options:
                if fault := self._fault(group_options):
                    raise fault
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise CheckpointError(f"the state dict does not fit {type(self).__name__}: {error}") from error
        self.optimizer.load_state_dict({**state_dict, "state": inner, state.KIND: type(self.optimizer).__name__})
        for group, loaded in zip(self.param_groups, options, strict=True):
            group.update(loaded)
        if self._flags() != self._built_flags:
            self._build()
        self._write_state(own_state)
        self._unused_slots = {}
        self._hooks.after_load(self)


def _only(entry: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name in names}
