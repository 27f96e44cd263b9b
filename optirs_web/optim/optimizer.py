"""The base class of all optimizers: it has groups of parameters, a rule, and a layout of the rule's state."""

from __future__ import annotations

import operator
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from inspect import signature
from itertools import compress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from ..autograd import note_grad, set_grad
from ..errors import CheckpointError, NonFiniteError, UnsupportedError, quoted
from ..ops.creation import full, zeros
from ..recovery import keep_track
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32
from ..runtime.program import NotReadyError, StaleProgramError
from ..runtime.rules import Flags, Rule
from ..sparse import SparseRows
from ..tensors import Parameter, Tensor
from ..wgsl import slot_storage
from . import state
from .arenas import move_into_arenas
from .arguments import instead_of
from .gradients import assign_grads
from .groups import (
    Params,
    Rate,
    Schedules,
    check_members,
    check_rate,
    on_host,
    option_error,
    ordered,
    read_groups,
    takes_option,
)
from .hooks import OptimizerHooks, RemovableHandle
from .layout import Layout
from .options import (
    LARGEST_FLOAT32,
    NotANumberError,
    Options,
    at_least_zero,
    derived,
    fractions,
    is_number,
    numbers_of,
)
from .storage import check_rounding, check_state_dtype, stored_types
from .stored_state import Slots

if TYPE_CHECKING:
    from .projections import Projection
    from .transforms import Transform

__all__ = [
    "LARGEST_FLOAT32",
    "Optimizer",
    "Options",
    "Params",
    "Rate",
    "Rule",
    "at_least_zero",
    "fractions",
]

_IMMUTABLE = {bool, float, int, str, tuple, type(None)}
"""Types of options that only another object changes; those of lists, arrays and tensors change in place."""


class Optimizer:
    """Steps a list of parameters by one WGSL rule, for any number of tensors in a few dispatches.

    A subclass names the rule. The rule's declarations are set from the options of a group, by name:

        Hyper       the option; `beta1` and so on from `betas`; `one_minus_X` and `log_X` from X
        overrides   the option as a bool; `use_X`: whether X is not 0; otherwise the attribute of the class

    Attributes:
        param_groups: dicts with "params" and the group's options. Change an option and the next step
            uses it; a recorded step does so too. `lr` may be a tensor of one element: each step uses its
            current value, which the host does not read. A state dict has its value, and loading one
            writes it.
        defaults: the options of a group that does not set them.
    """

    rule: ClassVar[Rule]
    layout_type: ClassVar[type[Layout]] = Layout

    needs: ClassVar[str] = ""
    """A description of the input that it needs besides gradients of tensors of any shape; "" if none."""

    takes_dense: ClassVar[bool] = True
    """Gradients may be tensors; otherwise all are `SparseRows`."""

    takes_tensor_lr: ClassVar[bool] = True
    """`lr` may be a tensor, which the host does not read."""

    beta_count: ClassVar[int] = 2
    """The number of `betas`, if the optimizer has any."""

    fixed: ClassVar[tuple[str, ...]] = ()
    """Flags that determine the shape of state."""

    tiny: ClassVar[tuple[str, ...]] = ()
    """State whose values are too small for float16, such as squares."""

    scalars_in_state: ClassVar[tuple[str, ...]] = ("step",)
    """The members of Scalars in the state dict; all others follow from them."""

    def __init__(
        self,
        params: Params,
        defaults: Mapping[str, Any] = MappingProxyType({}),
        *,
        skip_nonfinite: bool = False,
        transforms: Sequence[Transform | Projection] = (),
        state_dtype: str | Mapping[str, str] = "float32",
        param_dtype: str = "float32",
        rounding: str | None = None,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        **unknown: object,
    ) -> None:
        name = type(self).__name__
        if type(self) is Optimizer:
            raise TypeError(
                "Optimizer is the base class and has no rule: use one such as SGD, Adam or AdamW, "
                "or make one by optim.from_wgsl"
            )
        self.defaults: dict[str, Any] = {**defaults, "maximize": maximize}
        if "betas" in defaults:
            self.defaults["betas"] = numbers_of(defaults["betas"])
        if unknown:
            option = next(iter(unknown))
            hint = instead_of(option, [*defaults, *Options.__annotations__])
            raise TypeError(f"{name} got an unexpected keyword argument '{option}'; {hint}")
        self.param_groups: list[dict[str, Any]] = []
        self._state_dtype = self._checked_state_dtype(state_dtype)
        self._rounding = check_rounding(param_dtype, rounding, not self.takes_dense, name)
        self._transforms, self._projections = _transforms_and_projections(transforms) if transforms else ([], [])
        self._is_scaled = False  # a GradScaler steps it
        self._scaler: View | None = None
        self._skip_nonfinite = skip_nonfinite or any(transform.checks for transform in self._transforms)
        self._seen_skipped = 0
        self._reset()
        if isinstance(params, Tensor):
            raise TypeError("params must be a list of parameters, or of dicts; wrap a single parameter in a list")
        groups: list[Any] = [params] if isinstance(params, Mapping) else ordered(params)
        self._append_groups(groups if groups and isinstance(groups[0], Mapping) else [{"params": groups}])
        self._build()
        self._round_params()
        keep_track(self)

    def _reset(self) -> None:
        """Set what copies do not take over: there is no layout, and there are no schedules, hooks or snapshots yet."""
        self._layout: Layout | None = None
        self._unused_slots: Slots = {}  # state that is unused since a change of flags
        self._checked_options: Sequence[Mapping[str, Any]] = ()  # the groups' options when they were last checked
        self._refreshed: Sequence[object] = ()  # the groups' content when last written; () if it can change in place
        self._schedules: Schedules | None = None
        self._hooks = OptimizerHooks()
        self._snapshot: state.State | None = None
        self._snapshot_rates: list[Any] = []

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name not in ("params", "param_names")]
        return "\n".join([*lines, ")"])

    # Groups and their options.

    def validate(self, group: Mapping[str, Any]) -> None:
        """Raise ValueError if an option of the group is out of range."""
        at_least_zero(group, *(name for name in ("lr", "eps", "weight_decay", "momentum") if name in group))
        if "betas" in group:
            fractions(group, "betas")
            if len(group["betas"]) != self.beta_count:
                raise ValueError(
                    f"betas must be {self.beta_count} number{'s' * (self.beta_count != 1)}, not {group['betas']}"
                )

    def flags(self, group: Mapping[str, Any]) -> dict[str, bool]:
        """Return the rule's overrides."""
        return {name: self._flag(group, name) for name in self.rule.flags}

    def _flag(self, group: Mapping[str, Any], name: str) -> bool:
        option = name.removeprefix("use_")
        if option not in group:
            return bool(getattr(self, name))
        value = group[option]
        if not (value is None or is_number(value) or getattr(value, "shape", None) == ()):
            raise NotANumberError(f"Invalid {option} value: {value!r}")
        return bool(value) or (self._schedules is not None and option in self._schedules.params)

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        """Return the rule's Hyper."""
        return {name: derived(group, name) for name in self.rule.hyper}

    def changes_rows_alone(self, group: Mapping[str, Any]) -> bool:
        """Return whether a step with `SparseRows` as gradients changes those rows alone; otherwise they are made dense.

        Raises:
            UnsupportedError: the optimizer takes no `SparseRows`, or none with the options of the group.
        """
        raise UnsupportedError(
            f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam instead"
        )

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
        """Add all groups, or none if one is invalid."""
        added = read_groups(groups, self.defaults, type(self).__name__)
        for group in added:
            self._check(group)
        check_members([*self.param_groups, *added])
        self.param_groups.extend(added)

    def _check(self, group: dict[str, Any]) -> None:
        """Raise an error if an option of the group cannot be used; the value of a tensor lr is not read.

        Betas that are tensors become numbers.
        """
        if "betas" in group:
            group["betas"] = numbers_of(group["betas"])
        check_rate(group, type(self).__name__, self.takes_tensor_lr)
        error = self._fault(on_host(group))
        if error is not None:
            parameters = signature(type(self)).parameters.values()
            usual = {parameter.name: parameter.default for parameter in parameters}
            raise option_error(error, group, usual, self._fault) from None

    def _fault(self, group: Mapping[str, Any]) -> Exception | None:
        """Return the error of a group's options, or None."""
        try:
            self.flags(group)
            self.validate(group)
            for name, value in self.hyper(group).items():
                if not -LARGEST_FLOAT32 <= value <= LARGEST_FLOAT32:
                    return OverflowError(f"{name} is {value}")
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            return error
        return None

    def _takes_option(self, name: str) -> bool:
        return takes_option(name, self.defaults)

    def _rates(self) -> dict[int, Tensor]:
        """Return the learning rates that are tensors, by number of the group."""
        groups = enumerate(self.param_groups)
        return {number: lr for number, group in groups if isinstance(lr := group.get("lr"), Tensor)}

    def _params(self) -> list[Parameter]:
        return [param for group in self.param_groups for param in group["params"]]

    def _flags(self) -> list[Flags]:
        """Return the flags of each group."""
        return [
            tuple(sorted({**self.flags(on_host(group)), "maximize": self._flag(group, "maximize")}.items()))
            for group in self.param_groups
        ]

    # Hooks.

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Have `hook(optimizer, args, kwargs)` called before each step; it may return other (args, kwargs).

        Within a compiled step hooks are called while it is recorded, as all Python in it.
        """
        return self._hooks.step_pre.register(hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Have `hook(optimizer, args, kwargs)` called after each step."""
        return self._hooks.step_post.register(hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have `hook(optimizer)` called before a state dict is made."""
        return self._hooks.state_dict_pre.register(hook, prepend=prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have `hook(optimizer, state_dict)` called after a state dict is made; it may return another dict."""
        return self._hooks.state_dict_post.register(hook, prepend=prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have `hook(optimizer, state_dict)` called before one is loaded; it may return another dict."""
        return self._hooks.load_pre.register(hook, prepend=prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have `hook(optimizer)` called after a state dict was loaded."""
        return self._hooks.load_post.register(hook, prepend=prepend)

    # Steps.

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
        args, kwargs = self._hooks.before_step(self, args, kwargs)
        with nullcontext() if args or "closure" in kwargs else self._built.device.turn():  # a closure may do anything
            result = self._step(*args, **kwargs)
        self._hooks.after_step(self, args, kwargs)
        return result

    def _step(
        self,
        closure: Callable[[], Any] | None = None,
        *,
        grads: Sequence[Any] | None = None,
    ) -> Any:
        """Take the step, without the hooks."""
        result = closure() if closure is not None else None
        with self._built.device.turn():
            self._enqueue(grads)
        return result

    def _enqueue(self, grads: Sequence[Any] | None) -> None:
        """Enqueue the dispatches of the step, and have a recorded step repeat what the host does besides."""
        params = self._params()
        if grads is not None:
            assign_grads(params, grads)
        self._refresh()
        for param in params:
            note_grad(param, reads=True)
        recording = self._built.device.recording
        live = [param._grad is not None for param in params]
        if recording is not None:
            recording.before_replay.append(partial(self._before_replay, self._built, [*compress(params, live)]))
            recording.before_replay.append(partial(self._check_rates, self._rates()))
        self._prepare_step(params, live)
        projected = [projection.selected(params, live) for projection in self._projections]
        self._built.device.all_or_nothing(partial(self._enqueue_updates, params, live, projected))
        if any(live):
            self._note_change(live)

    def _prepare_step(self, params: Sequence[Parameter], live: Sequence[bool]) -> None:
        """Evaluate a subclass's callables, before a step enqueues anything."""

    def _enqueue_updates(
        self, params: Sequence[Parameter], live: Sequence[bool], projected: Sequence[Sequence[bool]]
    ) -> None:
        self._dispatch(params, live)
        for projection, selected in zip(self._projections, projected, strict=True):
            projection.apply_to(params, selected)
        if projected and self._rounding and any(live):
            self._built.round_params()

    def _dispatch(self, params: Sequence[Parameter], live: Sequence[bool]) -> None:
        if not self.takes_dense or any(isinstance(param._grad, SparseRows) for param in params):
            from .sparse_layout import SparseLayout, rows_of  # which few optimizers need

            rows = rows_of(self, params)
            if rows and isinstance(self._built, SparseLayout):
                self._built.dispatch_rows(live, rows, self._scaler)
                return
        if any(live):
            self._built.dispatch(live, *([] if self._scaler is None else [self._scaler]))

    def scaled_step(self, scaler: View | None, **kwargs: Any) -> Any:
        """Take a step for `GradScaler.step`, with gradients of a scaled loss, or of one that was unscaled (None)."""
        self._make_scaled()
        self._scaler = scaler if scaler is not None else self._built.neutral_scaler()
        try:
            return self.step(**kwargs)
        finally:
            self._scaler = None

    def unscale_grads(self, scaler: View) -> None:
        """Divide the gradients by the scale of the loss, for `GradScaler.unscale_`."""
        self._make_scaled()
        self._refresh()
        grads: list[object] = [param.grad for param in self._params()]
        live = [grad is not None and not isinstance(grad, SparseRows) for grad in grads]
        recording = self._built.device.recording
        if recording is not None:
            recording.before_replay.append(partial(self._before_replay, self._built, []))
        self._built.unscale(live, scaler)
        for grad in grads:
            if isinstance(grad, SparseRows):
                grad.unscale(scaler)

    def _before_replay(self, recorded: Layout, changed: Sequence[Parameter]) -> None:
        if recorded is self._layout:
            self._refresh_options()
        if recorded is not self._layout:
            raise StaleProgramError("the optimizer was rebuilt; record the step again")
        for param in changed:
            param._version += 1

    def _check_rates(self, recorded: Mapping[int, Tensor]) -> None:
        rates = self._rates()
        if rates.keys() != recorded.keys() or any(rates[number].view != rate.view for number, rate in recorded.items()):
            raise StaleProgramError("lr is not the tensor that the step was recorded with; record it again")

    def _note_change(self, live: Sequence[bool]) -> None:
        for param in compress(self._params(), live):
            param._version += 1

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients to None; or, with `set_to_none=False`, to zero where they exist."""
        for param in self._params():
            grad: object = None if set_to_none else param.grad
            if grad is None:
                set_grad(param, None)
            elif isinstance(grad, SparseRows):
                set_grad(param, SparseRows([], [], param.shape, param.device))
            else:
                param.grad = zeros(param.shape, param.device)

    # Non-finite gradients.

    @property
    def skipped_steps(self) -> int:
        """Steps skipped because a gradient was NaN or infinite, since it was made or loaded. Waits, for 4 bytes."""
        return _count(self._built.device.read(self._built.skipped_view))

    def check_finite(self) -> None:
        """Wait, and raise an error if values were not finite. Reads back a few bytes; call it from time to time.

        Raises:
            NonFiniteError: with `skip_nonfinite`, steps have been skipped since the last call; without
                it, a parameter is NaN or infinite.
        """
        self._check_count(_count(self._built.device.read(self._view_to_check())))

    async def check_finite_async(self) -> None:
        """The awaitable twin of `check_finite`."""
        self._check_count(_count(await self._built.device.read_async(self._view_to_check())))

    def _view_to_check(self) -> View:
        return self._built.skipped_view if self._skip_nonfinite else self._built.check_params()

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
        """The state of each parameter, as tensors over its memory. Nothing is copied or read.

        The tensors are valid until a group is added or a flag changes.
        """
        views = self._built.tensor_views(self.scalars_in_state)

        def shape(name: str, param: Parameter) -> tuple[int, ...]:
            return () if name in self.scalars_in_state else self._built.state_shape(name, param.shape)

        return {
            param: {name: Tensor(view, shape(name, param), FLOAT32) for name, view in tensor_views.items()}
            for param, tensor_views in zip(self._params(), views, strict=True)
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state in torch's names and layout, on the host. Waits.

        Returns:
            {"state": {index: {"step": float32, "exp_avg": array, ...}}, "param_groups": [{..., "params":
            [index, ...]}], "optimizer": the name of the class}, where a parameter has no entry before its first step.
            The arrays are NumPy's; `optirs_web.interop.torch.to_torch` makes torch tensors of them.
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
        self._hooks.before_state_dict(self)

    def _after_state_dict(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        return self._hooks.after_state_dict(self, {**state_dict, state.KIND: type(self).__name__})

    def state_views(self) -> dict[str, View]:
        """Return the views that a state dict is made from, to read them along with others."""
        rates = {f"lr.{number}": lr.view for number, lr in self._rates().items()}
        return {**self._built.state_views(), **rates}

    def numbered_groups(self) -> list[dict[str, Any]]:
        """Return the groups with numbers instead of parameters, as in a state dict; 0 for a tensor lr."""
        groups = []
        first_number = 0
        for group in self.param_groups:
            count = len(group["params"])
            groups.append({**group, "params": list(range(first_number, first_number + count))})
            if isinstance(group.get("lr"), Tensor):
                groups[-1]["lr"] = 0.0
            first_number += count
        return groups

    def state_reader(self) -> Callable[[Mapping[str, memoryview]], dict[str, Any]]:
        """Return a function that makes the current state dict from the contents of `state_views`, also later."""
        layout, params, groups, rates = self._built, self._params(), self.numbered_groups(), list(self._rates())

        def make(contents: Mapping[str, memoryview]) -> dict[str, Any]:
            for number in rates:
                groups[number]["lr"] = contents[f"lr.{number}"].cast("f")[0]
            return {"state": state.read(layout, params, self.scalars_in_state, contents), "param_groups": groups}

        return make

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state dict of ours or of the torch optimizer of that name: all of it, or nothing.

        Values may be arrays, torch tensors on the CPU, or numbers. Where parameters have names in the state dict and in
        the optimizer, state is matched by name; otherwise by order, as in torch.

        Raises:
            CheckpointError: it is of another kind of optimizer, or the groups, options, shapes or names do not fit.
        """
        state_dict = self._hooks.before_load(self, state_dict)
        state.check_kind(state_dict, self)
        largest = map(slot_storage.largest_name, self._built.in_fewer_bits(self.rule.state))
        known_names = (*self.rule.state, *largest, *self._built.more_state, *self.scalars_in_state)
        options, new_state = state.check(
            state_dict, self.param_groups, self._takes_option, known_names, self.scalars_in_state,
            self._built.state_shape, self._built.rule.counters,
        )  # fmt: skip
        before, layout = [dict(group) for group in self.param_groups], self._built
        rates = {number: options[number].pop("lr") for number in self._rates() if "lr" in options[number]}
        try:
            for number, value in rates.items():
                self.validate({**on_host(self.param_groups[number]), "lr": value})
            for group, loaded in zip(self.param_groups, options, strict=True):
                group.update(loaded)
            for group in self.param_groups:
                self._check(group)
            if self._flags() != self._built_flags:
                self._build()
            self._write_state(new_state)
        except BaseException as error:  # also where there is no memory for another layout
            for group, old_group in zip(self.param_groups, before, strict=True):
                group.clear()
                group.update(old_group)
            if self._layout is not layout:
                self._build()
                self._built.take_over(layout, self._unused_slots)
            if isinstance(error, (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError)):
                raise CheckpointError(f"the state dict has options or state that do not fit: {error}") from error
            raise
        for number, value in rates.items():
            lr = self.param_groups[number]["lr"].view
            lr.buffer.device.write(lr, memoryview(struct.pack("<f", value)))
        self._built.forget_skipped()
        self._unused_slots = {}
        self._seen_skipped = 0
        self._hooks.after_load(self)

    # The layout on the device.

    def _build(self) -> None:
        """Make a layout that fits the groups, with no state in it."""
        params, group_flags = self._params(), self._flags()
        if params[0].device.recording is not None:
            raise UnsupportedError("make optimizers and parameter groups outside a compiled step")
        groups = [number for number, group in enumerate(self.param_groups) for _ in group["params"]]
        flags = [group_flags[number] for number in groups]
        stored = [
            stored_types(self.rule, self.layout_type, param_flags, param.size, self._state_dtype, self._rounding)
            for param, param_flags in zip(params, flags, strict=True)
        ]
        move_into_arenas(params, list(zip(flags, stored, strict=True)))
        rule, transforms = self.rule, self._transforms
        if self._is_scaled:
            from .transforms import unscale  # which few optimizers need

            transforms = [unscale(), *transforms]
        if transforms:
            from .pipeline import rule_with  # which few optimizers need

            rule = rule_with(rule, transforms)
        more = {"stored": stored} if any(stored) else {}
        layout = self.layout_type(rule, params, groups, len(self.param_groups), flags, self._skip_nonfinite, **more)
        layout.use_transforms(transforms, params)
        if self._layout is not None:
            self._layout.retire()
        self._layout = layout
        self._refreshed = ()
        self._built_flags = group_flags
        self._built_params = self._param_ids()

    def _checked_state_dtype(self, requested: str | Mapping[str, str]) -> dict[str, str]:
        """Check `state_dtype`, and return the type of each slot, by name."""
        return check_state_dtype(requested, self.rule, self.layout_type, self.tiny, type(self).__name__)

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
        kinds = {
            type(value)
            for group in self.param_groups
            for name, value in group.items()
            if name not in ("params", "param_names")
        }
        if kinds <= _IMMUTABLE and self._schedules is None and self._built._pipeline is None:
            self._refreshed = held

    def _set_hyper(self) -> None:
        """Write the options to the device: those that are tensors are copied in each step."""
        self._refreshed = ()
        self._built.copy_rates_from({number: lr.view for number, lr in self._rates().items()})
        self._built.set_hyper([self.hyper(group) for group in self.param_groups])

    # The interface `recovery.Recoverable`.

    recovery_order: ClassVar[int] = 1

    def recovery_views(self) -> Mapping[str, View]:
        """Return the views of the state on the device; the options are on the host."""
        return self.state_views()

    def keeper(self) -> Callable[[Mapping[str, memoryview]], None]:
        """Return a function that stores the content of these views as the snapshot."""
        make = self.state_reader()

        def keep(contents: Mapping[str, memoryview]) -> None:
            state_dict = make(contents)
            self._snapshot = state_dict["state"]
            self._snapshot_rates = [group.get("lr") for group in state_dict["param_groups"]]

        return keep

    @property
    def has_snapshot(self) -> bool:
        """True if there is a snapshot."""
        return self._snapshot is not None

    def revive(self, device: Device) -> None:
        """Continue with the snapshot's state on the device of the parameters, which were revived before."""
        assert self._snapshot is not None
        self._layout = None
        self._unused_slots = {}
        self._seen_skipped = 0
        for number, lr in self._rates().items():
            if lr.device is not device:  # a Parameter was revived already
                self.param_groups[number]["lr"] = full(lr.shape, self._snapshot_rates[number], device)
        self._build()
        self._write_state(self._snapshot)

    def _write_state(self, new_state: Mapping[int, Mapping[str, Any]]) -> None:
        self._set_hyper()
        state.write(self._built, self.scalars_in_state, new_state)

    # Copies.

    def _not_copied(self) -> set[str]:
        """Return the names of the attributes that follow from the others, or belong to one object."""
        return {
            "_layout", "_built_params", "_built_flags", "_unused_slots", "_checked_options", "_refreshed",
            "_schedules", "_hooks", "_snapshot", "_snapshot_rates",
        }  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """For `copy.deepcopy` and `pickle`: the groups with their parameters, and the state on the host. Waits."""
        left_out = self._not_copied()
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        content = self._built.device.read_all(self.state_views())
        return {**kept, "_state": self.state_reader()(content)["state"]}

    def __setstate__(self, content: dict[str, Any]) -> None:
        content = dict(content)
        saved_state = content.pop("_state")
        self._reset()
        vars(self).update(content)
        self._build()
        self._write_state(saved_state)
        keep_track(self)


def _transforms_and_projections(
    items: Sequence[Transform | Projection],
) -> tuple[list[Transform], list[Projection]]:
    from .projections import Projection  # which few optimizers need

    transforms = [transform for transform in items if not isinstance(transform, Projection)]
    if not all(hasattr(transform, "checks") for transform in transforms):
        raise TypeError(f"transforms are a list of optim.transforms and projections, not {quoted(items)}")
    return transforms, [transform for transform in items if isinstance(transform, Projection)]


def _count(raw: memoryview) -> int:
    return int(raw.cast("I")[0])


def _compared(option: Any) -> Any:
    """Return a value by which options are compared: the identity of arrays and tensors, whose == is elementwise."""
    return tuple(option) if isinstance(option, list) else id(option) if hasattr(option, "shape") else option
