"""The base of all optimizers: parameter groups, the step, the state dict."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress
from numbers import Real
from typing import Any, ClassVar, NoReturn, TypedDict

from ..autograd import note_grad, set_grad
from ..errors import CheckpointError, NonFiniteError, ShapeError, UnsupportedError
from ..ops import clone, zeros
from ..recovery import keep_track
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.program import NotReadyError, StaleProgramError
from ..runtime.rules import Flags, Rule
from ..tensors import Parameter, Tensor
from . import state
from .layout import Layout, Slots, move_into_arenas

__all__ = ["LARGEST_FLOAT32", "Optimizer", "Options", "Params", "Rule", "at_least_zero", "fractions"]

LARGEST_FLOAT32 = 3.4028234663852886e38

Params = Iterable[Parameter] | Iterable[Mapping[str, Any]]

_WORDS = {"lr": "learning rate", "eps": "epsilon value"}
_SMALLEST_LOG = -100.0
"""exp(-100) is 0 in float32, so that beta = 0 needs no infinity."""


class Options(TypedDict, total=False):
    """What every optimizer takes besides the options of its rule.

    skip_nonfinite: leave everything as it is, step counts too, when a gradient is NaN or infinite.
    maximize: go up instead of down.
    foreach, fused, capturable: torch's; accepted, and without a meaning here: every step is fused.
    """

    skip_nonfinite: bool
    maximize: bool
    foreach: bool | None
    fused: bool | None
    capturable: bool


def at_least_zero(group: Mapping[str, Any], *names: str) -> None:
    """Refuse options that are negative or no number, in torch's words.

    Raises:
        ValueError: the message names the option.
    """
    for name in names:
        value = group[name]
        if not (isinstance(value, Real) and 0 <= value <= LARGEST_FLOAT32):  # type: ignore[operator]
            raise ValueError(f"Invalid {_WORDS.get(name, f'{name} value')}: {value}")


def fractions(group: Mapping[str, Any], *names: str) -> None:
    """Refuse options that are no numbers from 0 to less than 1, in torch's words; `betas` are several.

    Raises:
        ValueError: the message names the option.
    """
    for name in names:
        value = group[name]
        if name != "betas":
            if not _is_fraction(value):
                raise ValueError(f"Invalid {name} value: {value}")
            continue
        if not isinstance(value, (tuple, list)):
            raise ValueError(f"betas are numbers in a tuple, not {value}")
        for index, beta in enumerate(value):
            if not _is_fraction(beta):
                raise ValueError(f"Invalid beta parameter at index {index}: {beta}")


def _is_fraction(value: Any) -> bool:
    return isinstance(value, Real) and 0 <= float(value) < 1


def _count(raw: memoryview) -> int:
    return int(raw.cast("I")[0])


def _derived(group: Mapping[str, Any], name: str) -> float:
    """A member of Hyper: an option, or what its name says is made of one, in float64 and rounded once."""
    if name.startswith("one_minus_"):
        return 1 - _derived(group, name.removeprefix("one_minus_"))
    if name.startswith("log_"):
        value = _derived(group, name.removeprefix("log_"))
        return math.log(value) if value else _SMALLEST_LOG
    if name not in group and name.startswith("beta"):
        return float(group["betas"][int(name.removeprefix("beta")) - 1])
    return float(group[name])


class Optimizer(ABC):
    """Steps a list of parameters by one WGSL rule, for any number of tensors in a few dispatches.

    A subclass names the rule. What the rule declares is filled in from the options of a group, by name:

        Hyper       the option; `beta1` and so on from `betas`; `one_minus_X` and `log_X` from X
        overrides   the option as a bool; `use_X`: whether X is not 0; otherwise the attribute of the class

    Attributes:
        param_groups: dicts with "params" and the group's options. Change an option and the next step
            uses it; a recorded step does so too.
        defaults: the options that a group has if it does not say otherwise.
    """

    rule: ClassVar[Rule]
    layout_type: ClassVar[type[Layout]] = Layout
    scalars_in_state: ClassVar[tuple[str, ...]] = ("step",)
    """The members of Scalars that the state dict shows; all others follow from them."""
    beta_count: ClassVar[int] = 2
    """How many `betas` there are, if the optimizer has any."""

    def __init__(
        self,
        params: Params,
        defaults: Mapping[str, Any],
        *,
        skip_nonfinite: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
    ) -> None:
        self.defaults: dict[str, Any] = {**defaults, "maximize": maximize}
        self.param_groups: list[dict[str, Any]] = []
        self._skip_nonfinite = skip_nonfinite
        self._seen_skipped = 0
        self._layout: Layout | None = None
        self._resting: Slots = {}  # state that a change of flags has put out of use
        if isinstance(params, Tensor):
            raise TypeError("params is a list of parameters, or of dicts; wrap a single parameter in a list")
        given: list[Any] = [params] if isinstance(params, Mapping) else list(params)
        self._append_groups(given if given and isinstance(given[0], Mapping) else [{"params": given}])
        self._snapshot: state.State | None = None
        self._build()
        keep_track(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an optimizer lies on a device and is not copied; make another one and load its state_dict()")

    # What a rule says of itself.

    def validate(self, group: Mapping[str, Any]) -> None:
        """Raise ValueError if an option of the group is out of range."""
        at_least_zero(group, *(one for one in ("lr", "eps", "weight_decay", "momentum") if one in group))
        if "betas" in group:
            fractions(group, "betas")
            if len(group["betas"]) != self.beta_count:
                raise ValueError(f"betas are {self.beta_count} numbers, not {group['betas']}")

    def flags(self, group: Mapping[str, Any]) -> dict[str, bool]:
        """The rule's overrides."""
        return {name: self._flag(group, name) for name in self.rule.flags}

    def _flag(self, group: Mapping[str, Any], name: str) -> bool:
        option = name.removeprefix("use_")
        return bool(group[option]) if option in group else getattr(self, name)

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        """The rule's Hyper."""
        return {name: _derived(group, name) for name in self.rule.hyper}

    # Groups.

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add a group: a dict with "params", and options that differ from the defaults.

        Raises:
            ValueError: an option is out of range, or a parameter is in another group already.
            TypeError: "params" holds something that is no `Parameter`, or an option is unknown.
        """
        count = len(self.param_groups)
        self._append_groups([group])
        try:
            self._rebuild()
        except BaseException:
            del self.param_groups[count:]
            raise

    def _append_groups(self, groups: Sequence[Any]) -> None:
        """All of them, or none."""
        known = {id(one) for one in self._params()}
        added = []
        for group in groups:
            if not isinstance(group, Mapping) or "params" not in group:
                raise TypeError('a parameter group is a dict with "params"')
            params = group["params"]
            params = [params] if isinstance(params, Tensor) else list(params)
            unknown = set(group) - set(self.defaults) - {"params"}
            if unknown:
                raise TypeError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}")
            for one in params:
                if not isinstance(one, Parameter):
                    raise TypeError(
                        f"an optimizer steps Parameters, not {type(one).__name__}; use optirs_web.Parameter"
                    )
                if id(one) in known:
                    raise ValueError("some parameters appear in more than one parameter group, or twice in one")
                known.add(id(one))
            added.append({**self.defaults, **group, "params": params})
            self.validate(added[-1])
        everything = [one for group in [*self.param_groups, *added] for one in group["params"]]
        if not everything:
            raise ValueError("optimizer got an empty parameter list")
        devices = dict.fromkeys(one.device for one in everything)
        if len(devices) > 1:
            raise ValueError(f"the parameters lie on different devices: {', '.join(map(str, devices))}")
        self.param_groups.extend(added)

    def _params(self) -> list[Parameter]:
        return [one for group in self.param_groups for one in group["params"]]

    def _flags(self) -> list[Flags]:
        """The flags of each group."""
        return [
            tuple(sorted({**self.flags(group), "maximize": bool(group["maximize"])}.items()))
            for group in self.param_groups
        ]

    # The device side.

    def _build(self) -> None:
        params, group_flags = self._params(), self._flags()
        if params[0].device.recording is not None:
            raise UnsupportedError("make optimizers and parameter groups outside a compiled step")
        groups = [number for number, group in enumerate(self.param_groups) for _ in group["params"]]
        flags = [group_flags[number] for number in groups]
        move_into_arenas(params, flags)
        layout = self.layout_type(self.rule, params, groups, len(self.param_groups), flags, self._skip_nonfinite)
        if self._layout is not None:
            self._layout.retire()
        self._layout = layout
        self._built_flags = group_flags
        self._built_params = self._param_ids()

    def _param_ids(self) -> list[list[int]]:
        return [[id(one) for one in group["params"]] for group in self.param_groups]

    def _rebuild(self) -> None:
        """Another layout with the same state."""
        before = self._built
        self._build()
        self._built.take_over(before, self._resting)
        self._resting = {**self._resting, **before.slots()}

    @property
    def _built(self) -> Layout:
        assert self._layout is not None
        return self._layout

    def _refresh(self) -> None:
        """Bring the device up to date with the options of the groups."""
        for group in self.param_groups:
            self.validate(group)
        if self._param_ids() != self._built_params:
            raise UnsupportedError(
                "parameters are not exchanged in param_groups; use add_param_group, or a new optimizer"
            )
        if self._flags() != self._built_flags:
            if self._built.device.recording is not None:  # a rebuild moves the state
                raise NotReadyError(self._refresh)
            self._rebuild()
        self._built.set_hyper([self.hyper(group) for group in self.param_groups])

    def step(self, closure: Callable[[], Any] | None = None, *, grads: Sequence[Any] | None = None) -> Any:
        """Update the parameters from their gradients. Parameters without one are left alone.

        Args:
            closure: called first; computes the loss and its gradients. Its result is returned.
            grads: gradients to use instead, one for each parameter in the order of the groups: tensors,
                arrays or None. They become the `grad` of the parameters.

        Raises:
            ShapeError: a gradient has another shape than its parameter, or there are too few or many.
            ValueError: an option of a group is out of range.
        """
        result = closure() if closure is not None else None
        params = self._params()
        if grads is not None:
            self._take(params, grads)
        self._refresh()
        for one in params:
            note_grad(one, reads=True)
        recording = self._built.device.recording
        live = [one._grad is not None for one in params]
        if recording is not None:
            recording.before_replay.append(partial(self._before_replay, self._built, live))
        if any(live):
            self._built.dispatch(live)
            self._note_change(live)
        return result

    def _before_replay(self, recorded: Layout, live: Sequence[bool]) -> None:
        if recorded is self._layout:
            self._refresh()
        if recorded is not self._layout:
            raise StaleProgramError("the optimizer was rebuilt; record the step again")
        self._note_change(live)

    def _note_change(self, live: Sequence[bool]) -> None:
        for param in compress(self._params(), live):
            param._version += 1

    @staticmethod
    def _take(params: Sequence[Parameter], grads: Sequence[Any]) -> None:
        grads = list(grads)
        if len(grads) != len(params):
            raise ShapeError(f"{len(grads)} gradients were given for {len(params)} parameters")
        for param, grad in zip(params, grads, strict=True):
            shape = param.shape if grad is None else state.shape_of(grad)
            if shape != param.shape:
                raise ShapeError(f"a gradient has the shape {shape}, its parameter {param.shape}")
        # A gradient that lies in an arena may be overwritten by one before it.
        in_arenas = {one._home.arena.grads for one in params if one._home is not None}
        given = [clone(one) if isinstance(one, Tensor) and one.view.buffer in in_arenas else one for one in grads]
        for param, grad in zip(params, given, strict=True):
            set_grad(param, grad)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients; or, with `set_to_none=False`, make those that exist zero."""
        for one in self._params():
            if set_to_none or one.grad is None:
                set_grad(one, None)
            else:
                one.grad = zeros(one.shape, one.device)

    # Non-finite gradients.

    @property
    def skipped_steps(self) -> int:
        """Steps left out because a gradient was NaN or infinite, since it was made or loaded. Waits, for 4 bytes."""
        return _count(self._built.device.read(self._built.skipped_view))

    def check_finite(self) -> None:
        """Wait, and make sure that training is well. Reads back a few bytes; call it now and then.

        Raises:
            NonFiniteError: with `skip_nonfinite`, steps have been left out since the last call; without
                it, a parameter is NaN or infinite.
        """
        self._check_count(_count(self._built.device.read(self._view_to_check())))

    async def check_finite_async(self) -> None:
        """The awaitable twin of `check_finite`."""
        self._check_count(_count(await self._built.device.read_async(self._view_to_check())))

    def _view_to_check(self) -> View:
        return self._built.skipped_view if self._skip_nonfinite else self._built.look_at_params()

    def _check_count(self, count: int) -> None:
        if not self._skip_nonfinite:
            if count:
                raise NonFiniteError(
                    "a parameter is NaN or infinite; lower the learning rate, or use skip_nonfinite=True"
                )
            return
        new, self._seen_skipped = count - self._seen_skipped, count
        if new:
            raise NonFiniteError(f"{new} step(s) were skipped because a gradient was NaN or infinite ({count} in all)")

    # State.

    def state_dict(self) -> dict[str, Any]:
        """The state in torch's names and layout, on the host. Waits.

        Returns:
            {"state": {index: {"step": float32, "exp_avg": array, ...}}, "param_groups": [{..., "params":
            [index, ...]}]}, where a parameter has no entry before its first step. The arrays are NumPy's;
            `optirs_web.interop.torch.to_torch` makes torch tensors of them.
        """
        make = self.state_reader()
        return make(self._built.device.read_all(self.state_views()))

    def state_dict_async(self) -> Awaitable[dict[str, Any]]:
        """The awaitable twin of `state_dict`: the state as it is at the call."""
        make, reading = self.state_reader(), self._built.device.read_all_async(self.state_views())

        async def finish() -> dict[str, Any]:
            return make(await reading)

        return finish()

    def state_views(self) -> dict[str, View]:
        """What a state dict is made of, for those who read it along with other things."""
        return self._built.state_views()

    def numbered_groups(self) -> list[dict[str, Any]]:
        """The groups with numbers instead of parameters, as a state dict has them."""
        groups = []
        first = 0
        for group in self.param_groups:
            count = len(group["params"])
            groups.append({**group, "params": list(range(first, first + count))})
            first += count
        return groups

    def state_reader(self) -> Callable[[Mapping[str, memoryview]], dict[str, Any]]:
        """What makes the state dict of now from the contents of `state_views`, whatever happens in between."""
        layout, params, groups = self._built, self._params(), self.numbered_groups()

        def make(contents: Mapping[str, memoryview]) -> dict[str, Any]:
            return {"state": state.read(layout, params, self.scalars_in_state, contents), "param_groups": groups}

        return make

    # What `recovery.Recoverable` asks for.

    recovery_order: ClassVar[int] = 1

    def recovery_views(self) -> Mapping[str, View]:
        """The state on the device; the options are on the host."""
        return self.state_views()

    def keeper(self) -> Callable[[Mapping[str, memoryview]], None]:
        """Takes the state as the snapshot."""
        make = self.state_reader()
        return lambda contents: setattr(self, "_snapshot", make(contents)["state"])

    @property
    def has_snapshot(self) -> bool:
        """There is one."""
        return self._snapshot is not None

    def revive(self, device: Device) -> None:
        """Go on with the snapshot's state where the parameters lie now: they were revived before."""
        assert self._snapshot is not None
        self._layout = None
        self._resting = {}
        self._seen_skipped = 0
        self._build()
        state.write(self._built, self.scalars_in_state, self._snapshot)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state dict of ours or of the torch optimizer of that name. All of it, or nothing.

        Values may be arrays, torch tensors on the CPU, or numbers.

        Raises:
            CheckpointError: the groups, options, shapes or names do not fit this optimizer.
        """
        known = (*self.rule.state, *self.scalars_in_state)
        options, its_state = state.check(
            state_dict, self.param_groups, tuple(self.defaults), known, self.scalars_in_state
        )
        for one in options:
            try:
                self.validate({**self.defaults, **one})
            except ValueError as error:
                raise CheckpointError(f"the state dict has an option out of range: {error}") from error
        before = [dict(group) for group in self.param_groups]
        try:
            for group, loaded in zip(self.param_groups, options, strict=True):
                group.update(loaded)
            if self._flags() != self._built_flags:
                self._build()
        except BaseException:  # no memory for another layout
            for group, old in zip(self.param_groups, before, strict=True):
                group.update(old)
            raise
        state.write(self._built, self.scalars_in_state, its_state)
        self._built.forget_skipped()
        self._resting = {}
        self._seen_skipped = 0
