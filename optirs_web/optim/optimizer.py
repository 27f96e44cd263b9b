"""The base of all optimizers: parameter groups, the step, the state dict."""

from __future__ import annotations

from abc import ABC
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, ClassVar, Protocol

from ..autograd import note_grad, set_grad
from ..errors import CheckpointError, NonFiniteError, ShapeError, UnsupportedError
from ..ops import clone, zeros
from ..recovery import keep_track
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32
from ..runtime.program import NotReadyError, StaleProgramError
from ..runtime.rules import Flags, Rule, Stored
from ..sparse import SparseRows
from ..tensors import Parameter, Tensor
from ..wgsl import slot_storage
from . import state
from .hooks import Hooks, RemovableHandle, global_step_post_hooks, global_step_pre_hooks
from .layout import Layout, Slots, move_into_arenas
from .options import LARGEST_FLOAT32, SMALLEST_8_BIT, STATE_DTYPES, Options, at_least_zero, derived, fractions
from .pipeline import rule_with
from .projections import Projection
from .sparse_layout import SparseLayout, rows_of
from .transforms import Transform, unscale

__all__ = ["LARGEST_FLOAT32", "Optimizer", "Options", "Params", "Rule", "at_least_zero", "fractions"]

Params = Iterable[Parameter] | Iterable[Mapping[str, Any]] | Iterable[tuple[str, Parameter]]


class Schedules(Protocol):
    """The schedules of an optimizer's options; see `lr_scheduler`."""

    params: set[str]
    """The options that follow one."""

    def notice(self) -> None:
        """Find out which options somebody else has changed since."""


def _count(raw: memoryview) -> int:
    return int(raw.cast("I")[0])


def _names_and_params(group: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    """The parameters of a group and, if they were given as pairs, their names."""
    given = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
    pairs = [one for one in given if isinstance(one, tuple)]
    if pairs and len(pairs) < len(given):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    if any(len(one) != 2 or not isinstance(one[0], str) for one in pairs):
        raise TypeError("a named parameter is a pair of a name and a Parameter")
    names = [one[0] for one in pairs] or list(group.get("param_names", ()))
    if names and (len(names) != len(given) or len(set(names)) < len(names)):
        raise ValueError(f"there is one name for each parameter, and each is another one; there are {names}")
    return names, [one[1] for one in pairs] or given


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
    needs: ClassVar[str] = ""
    """What it needs besides gradients of tensors of any shape; "" if nothing."""
    beta_count: ClassVar[int] = 2
    """How many `betas` there are, if the optimizer has any."""
    takes_dense: ClassVar[bool] = True
    """Gradients may be tensors; otherwise all are `SparseRows`."""

    def __init__(
        self,
        params: Params,
        defaults: Mapping[str, Any],
        *,
        skip_nonfinite: bool = False,
        transforms: Sequence[Transform | Projection] = (),
        state_dtype: str | Mapping[str, str] = "float32",
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
    ) -> None:
        self.defaults: dict[str, Any] = {**defaults, "maximize": maximize}
        self.param_groups: list[dict[str, Any]] = []
        self._state_dtype = self._checked_state_dtype(state_dtype)
        self._transforms = [one for one in transforms if not isinstance(one, Projection)]
        self._projections = [one for one in transforms if isinstance(one, Projection)]
        self._is_scaled = False  # a GradScaler steps it
        self._scaler: View | None = None
        self._skip_nonfinite = skip_nonfinite or any(one.checks for one in self._transforms)
        self._seen_skipped = 0
        self._layout: Layout | None = None
        self._schedules: Schedules | None = None
        self._resting: Slots = {}  # state that a change of flags has put out of use
        if isinstance(params, Tensor):
            raise TypeError("params is a list of parameters, or of dicts; wrap a single parameter in a list")
        given: list[Any] = [params] if isinstance(params, Mapping) else list(params)
        self._make_hooks()
        self._append_groups(given if given and isinstance(given[0], Mapping) else [{"params": given}])
        self._snapshot: state.State | None = None
        self._build()
        keep_track(self)

    def __getstate__(self) -> dict[str, Any]:
        """For `copy.deepcopy` and `pickle`: the groups with their parameters, and the state on the host. Waits."""
        left_out = {"_layout", "_schedules", "_resting", "_built_params", "_built_flags", "_snapshot", "_hooks"}
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        content = self._built.device.read_all(self.state_views())
        return {**kept, "_state": self.state_reader()(content)["state"]}

    def __setstate__(self, content: dict[str, Any]) -> None:
        content = dict(content)
        its_state = content.pop("_state")
        vars(self).update(content, _layout=None, _schedules=None, _resting={}, _snapshot=None)
        self._make_hooks()
        self._build()
        self._write_state(its_state)
        keep_track(self)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name not in ("params", "param_names")]
        return "\n".join([*lines, ")"])

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
        if option not in group:
            return bool(getattr(self, name))
        return bool(group[option]) or (self._schedules is not None and option in self._schedules.params)

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        """The rule's Hyper."""
        return {name: derived(group, name) for name in self.rule.hyper}

    def changes_rows_alone(self, group: Mapping[str, Any]) -> bool:
        """Whether a step with `SparseRows` as gradients changes those rows alone; otherwise they are made dense.

        Raises:
            UnsupportedError: the optimizer takes none, or none with the options of the group.
        """
        raise UnsupportedError(
            f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam instead"
        )

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
            names, params = _names_and_params(group)
            unknown = {name for name in group if not self._knows(name)} - {"params", "param_names"}
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
            added.append({**self.defaults, **group, "params": params, **({"param_names": names} if names else {})})
            self.validate(added[-1])
        everything = [one for group in [*self.param_groups, *added] for one in group["params"]]
        if not everything:
            raise ValueError("optimizer got an empty parameter list")
        devices = dict.fromkeys(one.device for one in everything)
        if len(devices) > 1:
            raise ValueError(f"the parameters lie on different devices: {', '.join(map(str, devices))}")
        names_of_all = [name for group in [*self.param_groups, *added] for name in group.get("param_names", ())]
        if len(set(names_of_all)) < len(names_of_all):
            raise ValueError("two parameters have one name")
        named = {bool(group.get("param_names")) for group in [*self.param_groups, *added] if group["params"]}
        if len(named) > 1:
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        self.param_groups.extend(added)

    def _knows(self, name: str) -> bool:
        """Whether a group may have this option: one of the rule, or what a schedule notes of one."""
        kind, _, option = name.partition("_")
        return name in self.defaults or (
            kind in ("initial", "max", "min", "base") and (option in self.defaults or option in ("momentum", "beta1"))
        )

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
        stored = [self._stored(param, its_flags) for param, its_flags in zip(params, flags, strict=True)]
        move_into_arenas(params, list(zip(flags, stored, strict=True)))
        transforms = [*([unscale()] if self._is_scaled else []), *self._transforms]
        rule = rule_with(self.rule, transforms)
        more = {"stored": stored} if any(stored) else {}
        layout = self.layout_type(rule, params, groups, len(self.param_groups), flags, self._skip_nonfinite, **more)
        layout.use(transforms, params)
        if self._layout is not None:
            self._layout.retire()
        self._layout = layout
        self._built_flags = group_flags
        self._built_params = self._param_ids()

    def _checked_state_dtype(self, asked: str | Mapping[str, str]) -> dict[str, str]:
        """How each slot is to be stored, by name."""
        names = self.rule.state
        if self.layout_type not in (Layout, SparseLayout) and asked != "float32":
            raise UnsupportedError(f"{type(self).__name__} keeps its state as float32")
        by_slot = dict(asked) if isinstance(asked, Mapping) else dict.fromkeys(names, asked)
        for slot, kind in by_slot.items():
            if kind not in STATE_DTYPES:
                raise ValueError(f"state_dtype is one of {', '.join(STATE_DTYPES)}, not {kind!r}")
            if slot not in names:
                raise ValueError(f"state_dtype names '{slot}'; {type(self).__name__} has {', '.join(names) or 'none'}")
        return by_slot

    def _stored(self, param: Parameter, flags: Flags) -> Stored:
        """How the state of a parameter is stored, where not as float32."""
        if param.size < SMALLEST_8_BIT and "8bit" in self._state_dtype.values():
            return ()
        kinds = ((slot, self._state_dtype.get(slot, "float32")) for slot in self.rule.slots(flags))
        return tuple((slot, slot_storage.kind_of(slot, kind)) for slot, kind in kinds if kind != "float32")

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

    def _make_scaled(self) -> None:
        """Make room for the scale of the loss."""
        if not self._is_scaled:
            if self._built.device.recording is not None:
                raise NotReadyError(self._make_scaled)
            self._is_scaled = True
            self._rebuild()

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
        if self._schedules is not None:
            self._schedules.notice()
        self._built.set_hyper([self.hyper(group) for group in self.param_groups])

    def step(self, closure: Callable[[], Any] | None = None, *, grads: Sequence[Any] | None = None) -> Any:
        """Update the parameters from their gradients. Parameters without one are left alone.

        Args:
            closure: called first; computes the loss and its gradients. Its result is returned.
            grads: gradients to use instead, one for each parameter in the order of the groups: tensors,
                arrays, `SparseRows` or None. They become the `grad` of the parameters.

        Raises:
            ShapeError: a gradient has another shape than its parameter, or there are too few or many.
            ValueError: an option of a group is out of range.
        """
        args: Any = () if closure is None else (closure,)
        kwargs: Any = {} if grads is None else {"grads": grads}
        for hook in (*global_step_pre_hooks, *self._hooks["step_pre"]):
            changed = hook(self, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise TypeError(f"a hook before a step returns None or (args, kwargs), not {changed!r}")
                args, kwargs = changed
        result = self._step(*args, **kwargs)
        for hook in (*self._hooks["step_post"], *global_step_post_hooks):
            hook(self, args, kwargs)
        return result

    def _step(
        self,
        closure: Callable[[], Any] | None = None,
        *,
        grads: Sequence[Any] | None = None,
    ) -> Any:
        """The step itself, between the hooks."""
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
        rows = rows_of(self, params)
        if rows and isinstance(self._built, SparseLayout):
            self._built.dispatch_rows(live, rows)
        elif any(live):
            self._built.dispatch(live, *([] if self._scaler is None else [self._scaler]))
        if any(live):
            for projection in self._projections:
                projection.apply(params, live)
            self._note_change(live)
        return result

    def scaled_step(self, scaler: View | None, **kwargs: Any) -> Any:
        """What `GradScaler.step` does: a step with gradients of a scaled loss, or of one that was unscaled (None)."""
        self._make_scaled()
        self._scaler = scaler if scaler is not None else self._built.neutral_scaler()
        try:
            return self.step(**kwargs)
        finally:
            self._scaler = None

    def unscale_grads(self, scaler: View) -> None:
        """What `GradScaler.unscale_` does."""
        self._make_scaled()
        self._refresh()
        live = [one.grad is not None for one in self._params()]
        recording = self._built.device.recording
        if recording is not None:
            recording.before_replay.append(partial(self._before_replay, self._built, [False] * len(live)))
        self._built.unscale(live, scaler)

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
        pairs = zip(params, grads, strict=True)
        in_arenas = {one._home.arena.grads for one, grad in pairs if one._home and not isinstance(grad, SparseRows)}
        given = [clone(one) if isinstance(one, Tensor) and one.view.buffer in in_arenas else one for one in grads]
        for param, grad in zip(params, given, strict=True):
            set_grad(param, grad)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients; or, with `set_to_none=False`, make those that exist zero."""
        for one in self._params():
            grad: object = None if set_to_none else one.grad
            if grad is None:
                set_grad(one, None)
            elif isinstance(grad, SparseRows):
                set_grad(one, SparseRows([], [], one.shape, one.device))
            else:
                one.grad = zeros(one.shape, one.device)

    # Hooks.

    def _make_hooks(self) -> None:
        whens = ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_pre", "load_post")
        self._hooks = {when: Hooks() for when in whens}

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Have `hook(optimizer, args, kwargs)` called before each step; it may return other (args, kwargs).

        Within a compiled step hooks are called while it is recorded, as all Python in it.
        """
        return self._hooks["step_pre"].register(hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Have `hook(optimizer, args, kwargs)` called after each step."""
        return self._hooks["step_post"].register(hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have `hook(optimizer)` called before a state dict is made."""
        return self._hooks["state_dict_pre"].register(hook, prepend=prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have `hook(optimizer, state_dict)` called with what was made; it may return another dict."""
        return self._hooks["state_dict_post"].register(hook, prepend=prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have `hook(optimizer, state_dict)` called before one is loaded; it may return another dict."""
        return self._hooks["load_pre"].register(hook, prepend=prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have `hook(optimizer)` called after a state dict was loaded."""
        return self._hooks["load_post"].register(hook, prepend=prepend)

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

    @property
    def state(self) -> dict[Parameter, dict[str, Tensor]]:
        """The state of each parameter, as tensors in the places where it lies. Nothing is copied or read.

        The tensors are those of now: they are dropped when a group is added or a flag changes.
        """
        places = self._built.places(self.scalars_in_state)

        def shape(name: str, param: Parameter) -> tuple[int, ...]:
            return () if name in self.scalars_in_state else self._built.state_shape(name, param.shape)

        return {
            param: {name: Tensor(view, shape(name, param), FLOAT32) for name, view in its_places.items()}
            for param, its_places in zip(self._params(), places, strict=True)
        }

    def state_dict(self) -> dict[str, Any]:
        """The state in torch's names and layout, on the host. Waits.

        Returns:
            {"state": {index: {"step": float32, "exp_avg": array, ...}}, "param_groups": [{..., "params":
            [index, ...]}]}, where a parameter has no entry before its first step. The arrays are NumPy's;
            `optirs_web.interop.torch.to_torch` makes torch tensors of them.
        """
        self._before_state_dict()
        make = self.state_reader()
        return self._after_state_dict(make(self._built.device.read_all(self.state_views())))

    def state_dict_async(self) -> Awaitable[dict[str, Any]]:
        """The awaitable twin of `state_dict`: the state as it is at the call."""
        self._before_state_dict()
        make, reading = self.state_reader(), self._built.device.read_all_async(self.state_views())

        async def finish() -> dict[str, Any]:
            return self._after_state_dict(make(await reading))

        return finish()

    def _before_state_dict(self) -> None:
        for hook in self._hooks["state_dict_pre"]:
            hook(self)

    def _after_state_dict(self, made: dict[str, Any]) -> dict[str, Any]:
        for hook in self._hooks["state_dict_post"]:
            changed = hook(self, made)
            made = made if changed is None else changed
        return made

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
        self._write_state(self._snapshot)

    def _write_state(self, its_state: Mapping[int, Mapping[str, Any]]) -> None:
        self._built.set_hyper([self.hyper(group) for group in self.param_groups])
        state.write(self._built, self.scalars_in_state, its_state)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state dict of ours or of the torch optimizer of that name. All of it, or nothing.

        Values may be arrays, torch tensors on the CPU, or numbers. Where parameters have names here and there, state
        goes by them; otherwise by order, as in torch.

        Raises:
            CheckpointError: the groups, options, shapes or names do not fit this optimizer.
        """
        for hook in self._hooks["load_pre"]:
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        largest = map(slot_storage.largest_name, self.rule.state)
        known = (*self.rule.state, *largest, *self._built.more_state, *self.scalars_in_state)
        options, its_state = state.check(
            state_dict, self.param_groups, self._knows, known, self.scalars_in_state, self._built.state_shape,
            self._built.rule.counters,
        )  # fmt: skip
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
        self._write_state(its_state)
        self._built.forget_skipped()
        self._resting = {}
        self._seen_skipped = 0
        for hook in self._hooks["load_post"]:
            hook(self)
