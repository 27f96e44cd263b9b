"""The base of all optimizers: the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar

from ..autograd import as_gradient, note_grad, set_grad
from ..errors import NonFiniteError, ShapeError, quoted
from ..ops.arithmetic import clone
from ..ops.creation import zeros
from ..recovery import keep_track
from ..runtime.buffer import View
from ..runtime.program import StaleProgramError
from ..runtime.rules import Rule
from ..sparse import SparseRows
from ..tensors import Parameter, Tensor
from . import state
from .arguments import instead_of
from .groups import Params, Rate
from .hooks import global_step_post_hooks, global_step_pre_hooks
from .layout import Layout
from .options import LARGEST_FLOAT32, Options, at_least_zero, fractions, numbers_of
from .stateful import Stateful

if TYPE_CHECKING:
    from .projections import Projection
    from .transforms import Transform

__all__ = ["LARGEST_FLOAT32", "Optimizer", "Options", "Params", "Rate", "Rule", "at_least_zero", "fractions"]


class Optimizer(Stateful):
    """Steps a list of parameters by one WGSL rule, for any number of tensors in a few dispatches.

    A subclass names the rule. What the rule declares is filled in from the options of a group, by name:

        Hyper       the option; `beta1` and so on from `betas`; `one_minus_X` and `log_X` from X
        overrides   the option as a bool; `use_X`: whether X is not 0; otherwise the attribute of the class

    Attributes:
        param_groups: dicts with "params" and the group's options. Change an option and the next step
            uses it; a recorded step does so too. `lr` may be a tensor of one element: each step uses the
            value that it has then, which the host does not see. A state dict has its value; loading one
            writes there.
        defaults: the options that a group has if it does not say otherwise.
    """

    needs: ClassVar[str] = ""
    """What it needs besides gradients of tensors of any shape; "" if nothing."""

    def __init__(
        self,
        params: Params,
        defaults: Mapping[str, Any],
        *,
        skip_nonfinite: bool = False,
        transforms: Sequence[Transform | Projection] = (),
        state_dtype: str | Mapping[str, str] = "float32",
        param_dtype: str = "float32",
        rounding: str = "master",
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        **unknown: object,
    ) -> None:
        self.defaults = {**defaults, "maximize": maximize}
        if "betas" in defaults:
            self.defaults["betas"] = numbers_of(defaults["betas"])
        if unknown:
            name = next(iter(unknown))
            hint = instead_of(name, [*defaults, *Options.__annotations__])
            raise TypeError(f"{type(self).__name__} got an unexpected keyword argument '{name}'; {hint}")
        self.param_groups = []
        self._state_dtype = self._checked_state_dtype(state_dtype)
        self._rounding = self._checked_rounding(param_dtype, rounding)
        self._transforms, self._projections = _transforms_and_projections(transforms) if transforms else ([], [])
        self._is_scaled = False  # a GradScaler steps it
        self._scaler: View | None = None
        self._skip_nonfinite = skip_nonfinite or any(one.checks for one in self._transforms)
        self._seen_skipped = 0
        self._layout = None
        self._schedules = None
        self._resting = {}
        if isinstance(params, Tensor):
            raise TypeError("params must be a list of parameters, or of dicts; wrap a single parameter in a list")
        given: list[Any] = [params] if isinstance(params, Mapping) else list(params)
        self._make_hooks()
        self._append_groups(given if given and isinstance(given[0], Mapping) else [{"params": given}])
        self._snapshot = None
        self._build()
        self._round_params()
        keep_track(self)

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
                    raise TypeError(f"a hook before a step must return None or (args, kwargs), not {changed!r}")
                args, kwargs = changed
        with nullcontext() if args or "closure" in kwargs else self._built.device.turn():  # a closure may do anything
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
        with self._built.device.turn():
            self._step_in_turn(grads)
        return result

    def _step_in_turn(self, grads: Sequence[Any] | None) -> None:
        params = self._params()
        if grads is not None:
            self._take(params, grads)
        self._refresh()
        for one in params:
            note_grad(one, reads=True)
        recording = self._built.device.recording
        live = [one._grad is not None for one in params]
        if recording is not None:
            recording.before_replay.append(partial(self._before_replay, self._built, [*compress(params, live)]))
            recording.before_replay.append(partial(self._check_rates, self._rates()))
        self._ask(params, live)
        projected = [one.wanted(params, live) for one in self._projections]
        self._built.device.all_or_nothing(partial(self._change, params, live, projected))
        if any(live):
            self._note_change(live)

    def _ask(self, params: Sequence[Parameter], live: Sequence[bool]) -> None:
        """What a subclass asks its callables for, before a step enqueues anything."""

    def _change(self, params: Sequence[Parameter], live: Sequence[bool], projected: Sequence[Sequence[bool]]) -> None:
        self._dispatch(params, live)
        for projection, wanted in zip(self._projections, projected, strict=True):
            projection.apply_to(params, wanted)
        if projected and self._rounding and any(live):
            self._built.round_params()

    def _dispatch(self, params: Sequence[Parameter], live: Sequence[bool]) -> None:
        if not self.takes_dense or any(isinstance(one._grad, SparseRows) for one in params):
            from .sparse_layout import SparseLayout, rows_of

            rows = rows_of(self, params)
            if rows and isinstance(self._built, SparseLayout):
                self._built.dispatch_rows(live, rows, self._scaler)
                return
        if any(live):
            self._built.dispatch(live, *([] if self._scaler is None else [self._scaler]))

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
        grads: list[object] = [one.grad for one in self._params()]
        live = [one is not None and not isinstance(one, SparseRows) for one in grads]
        recording = self._built.device.recording
        if recording is not None:
            recording.before_replay.append(partial(self._before_replay, self._built, []))
        self._built.unscale(live, scaler)
        for one in grads:
            if isinstance(one, SparseRows):
                one.unscale(scaler)

    def _before_replay(self, recorded: Layout, changed: Sequence[Parameter]) -> None:
        if recorded is self._layout:
            self._refresh_options()
        if recorded is not self._layout:
            raise StaleProgramError("the optimizer was rebuilt; record the step again")
        for param in changed:
            param._version += 1

    def _check_rates(self, recorded: Mapping[int, Tensor]) -> None:
        now = self._rates()
        if now.keys() != recorded.keys() or any(now[number].view != one.view for number, one in recorded.items()):
            raise StaleProgramError("lr is not the tensor that the step was recorded with; record it again")

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
        given = [
            grad if grad is None or isinstance(grad, SparseRows) else as_gradient(param, grad)
            for param, grad in zip(params, grads, strict=True)
        ]
        given = [clone(one) if isinstance(one, Tensor) and one.view.buffer in in_arenas else one for one in given]
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


def _transforms_and_projections(
    given: Sequence[Transform | Projection],
) -> tuple[list[Transform], list[Projection]]:
    from .projections import Projection

    transforms = [one for one in given if not isinstance(one, Projection)]
    if not all(hasattr(one, "checks") for one in transforms):
        raise TypeError(f"transforms are a list of optim.transforms and projections, not {quoted(given)}")
    return transforms, [one for one in given if isinstance(one, Projection)]


def _count(raw: memoryview) -> int:
    return int(raw.cast("I")[0])
