"""The base class of all optimizers, with the step, checks for non-finite values, and scaled losses."""

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

    needs: ClassVar[str] = ""
    """A description of the input that it needs besides gradients of tensors of any shape; "" if none."""

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
        self._skip_nonfinite = skip_nonfinite or any(transform.checks for transform in self._transforms)
        self._seen_skipped = 0
        self._layout = None
        self._schedules = None
        self._unused_slots = {}
        if isinstance(params, Tensor):
            raise TypeError("params must be a list of parameters, or of dicts; wrap a single parameter in a list")
        groups: list[Any] = [params] if isinstance(params, Mapping) else list(params)
        self._make_hooks()
        self._append_groups(groups if groups and isinstance(groups[0], Mapping) else [{"params": groups}])
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
        """Take the step, without the hooks."""
        result = closure() if closure is not None else None
        with self._built.device.turn():
            self._step_in_turn(grads)
        return result

    def _step_in_turn(self, grads: Sequence[Any] | None) -> None:
        params = self._params()
        if grads is not None:
            self._assign_grads(params, grads)
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
        self._built.device.all_or_nothing(partial(self._change, params, live, projected))
        if any(live):
            self._note_change(live)

    def _prepare_step(self, params: Sequence[Parameter], live: Sequence[bool]) -> None:
        """Evaluate a subclass's callables, before a step enqueues anything."""

    def _change(self, params: Sequence[Parameter], live: Sequence[bool], projected: Sequence[Sequence[bool]]) -> None:
        self._dispatch(params, live)
        for projection, selected in zip(self._projections, projected, strict=True):
            projection.apply_to(params, selected)
        if projected and self._rounding and any(live):
            self._built.round_params()

    def _dispatch(self, params: Sequence[Parameter], live: Sequence[bool]) -> None:
        if not self.takes_dense or any(isinstance(param._grad, SparseRows) for param in params):
            from .sparse_layout import SparseLayout, rows_of

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

    @staticmethod
    def _assign_grads(params: Sequence[Parameter], grads: Sequence[Any]) -> None:
        grads = list(grads)
        if len(grads) != len(params):
            raise ShapeError(f"{len(grads)} gradients were given for {len(params)} parameters")
        for param, grad in zip(params, grads, strict=True):
            shape = param.shape if grad is None else state.shape_of(grad)
            if shape != param.shape:
                raise ShapeError(f"a gradient has the shape {shape}, its parameter {param.shape}")
        # A gradient in an arena may be overwritten by one before it.
        pairs = zip(params, grads, strict=True)
        in_arenas = {
            param._home.arena.grads for param, grad in pairs if param._home and not isinstance(grad, SparseRows)
        }
        gradients = [
            grad if grad is None or isinstance(grad, SparseRows) else as_gradient(param, grad)
            for param, grad in zip(params, grads, strict=True)
        ]
        gradients = [
            clone(gradient) if isinstance(gradient, Tensor) and gradient.view.buffer in in_arenas else gradient
            for gradient in gradients
        ]
        for param, grad in zip(params, gradients, strict=True):
            set_grad(param, grad)

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


def _transforms_and_projections(
    items: Sequence[Transform | Projection],
) -> tuple[list[Transform], list[Projection]]:
    from .projections import Projection

    transforms = [transform for transform in items if not isinstance(transform, Projection)]
    if not all(hasattr(transform, "checks") for transform in transforms):
        raise TypeError(f"transforms are a list of optim.transforms and projections, not {quoted(items)}")
    return transforms, [transform for transform in items if isinstance(transform, Projection)]


def _count(raw: memoryview) -> int:
    return int(raw.cast("I")[0])
