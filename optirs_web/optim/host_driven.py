"""The base of optimizers whose decisions are made on the host: line searches, inner iterations.

Vectors stay on the device. A step is a generator that yields the views that it reads, so that the same code serves
`step`, which waits, and `step_async`, which awaits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..autograd import grad_enabled
from ..errors import CheckpointError, ShapeError, UnsupportedError
from ..hostdata import host_data
from ..launch import apply
from ..ops.reduce import sum as sum_of
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.driving import drive, drive_async
from ..runtime.dtypes import FLOAT32
from ..tensors import Parameter, Tensor
from .optimizer import Optimizer, Params
from .state import check_kind
from .vectors import Reading, Space, dot, fold_magnitudes, largest, read, sum_of_magnitudes

__all__ = ["Evaluation", "HostDriven"]

Closure = Callable[[], Any]


class Evaluation(NamedTuple):
    """The loss and its gradient at a point.

    Attributes:
        loss: the value.
        result: the value that the closure returned.
        gradient: on the device.
        slope: the product of gradient and direction.
        largest: the largest magnitude in the gradient.
        sum: the sum of its magnitudes.
    """

    loss: float
    result: Any
    gradient: Tensor
    slope: float
    largest: float
    sum: float


class HostDriven(Optimizer):
    """An optimizer that steps all parameters, as one vector, by a method that reads scalars on the host.

    It needs a closure that computes the loss and its gradients, is called several times in a step, and cannot be
    recorded by `compile`; the closure can be a compiled function.
    """

    takes_tensor_lr = False

    def __init__(self, params: Params, defaults: Mapping[str, Any]) -> None:
        super().__init__(params, defaults)
        for options in (self.defaults, *self.param_groups):
            del options["maximize"]  # torch has none either
        if len(self.param_groups) != 1:
            raise ValueError(f"{type(self).__name__} doesn't support per-parameter options (parameter groups)")

    @abstractmethod
    def _minimize(self, closure: Closure) -> Reading:
        """Take a step: yield the views that it reads, return the first loss."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Return the state by name: numbers, vectors, and lists of either. Empty before the first step."""

    @abstractmethod
    def _checked(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return a loaded state, of arrays or lists, with its vectors on the device.

        Raises:
            CheckpointError: it is no such state.
        """

    @abstractmethod
    def _take_state(self, entry: Mapping[str, Any]) -> None:
        """Continue with a state."""

    # In place of the base class's layout.

    def _checked_state_dtype(self, requested: str | Mapping[str, str]) -> dict[str, str]:
        return {}

    def _build(self) -> None:
        params = self._params()
        if params[0].device.recording is not None:
            raise UnsupportedError("make optimizers and parameter groups outside a compiled step")
        self._space = Space(params)
        self._built_params = self._param_ids()
        self._take_state({})

    @property
    def _built(self) -> Space:  # type: ignore[override]
        return self._space

    def flags(self, group: Mapping[str, Any]) -> dict[str, bool]:
        """Return an empty dict, as there is no rule."""
        return {}

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        """Return an empty dict, as there is no rule."""
        return {}

    def _refresh(self) -> None:
        self.validate(self.param_groups[0])
        if self._param_ids() != self._built_params:
            raise UnsupportedError("parameters in param_groups cannot be replaced; make a new optimizer")

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Raise an error, as there is only one group.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"{type(self).__name__} doesn't support per-parameter options (parameter groups)")

    _kept: tuple[str, ...] = ()
    """The attributes that hold the state."""

    def _not_copied(self) -> set[str]:
        return {*super()._not_copied(), "_space", *self._kept}

    def _write_state(self, new_state: Mapping[int, Mapping[str, Any]]) -> None:
        self._take_state(self._checked(new_state.get(0, {})))

    # Steps.

    def step(self, closure: Closure | None = None, *, grads: Sequence[Any] | None = None) -> Any:
        """Take a step. Waits: see the class for how often.

        Args:
            closure: zeroes the gradients, computes the loss and its gradients, and returns the loss: a tensor of one
                element, or a number.
            grads: not for this optimizer.

        Returns:
            The first result of the closure.

        Raises:
            TypeError: there is no closure.
        """
        return super().step(closure, grads=grads)

    def _step(self, closure: Closure | None = None, *, grads: Sequence[Any] | None = None) -> Any:
        return drive(self._begin(closure, grads), self._space.device.read)

    async def step_async(self, closure: Closure) -> Any:
        """The awaitable twin of `step`, for a browser that cannot wait synchronously."""
        args, kwargs = self._hooks.before_step(self, (closure,), {})
        result = await self._step_async(*args, **kwargs)
        self._hooks.after_step(self, args, kwargs)
        return result

    async def _step_async(self, closure: Closure | None = None, *, grads: Sequence[Any] | None = None) -> Any:
        return await drive_async(self._begin(closure, grads), self._space.device.read_async)

    def scaled_step(self, scaler: View | None, **kwargs: Any) -> Any:
        raise UnsupportedError(f"{type(self).__name__} compares losses: use it without a GradScaler")

    def unscale_grads(self, scaler: View) -> None:
        raise UnsupportedError(f"{type(self).__name__} compares losses: use it without a GradScaler")

    def _begin(self, closure: Closure | None, grads: Sequence[Any] | None) -> Reading:
        if closure is None or grads is not None:
            raise TypeError(
                f"{type(self).__name__} evaluates the loss several times: call step(closure), where closure() zeroes "
                "the gradients, computes the loss and its gradients, and returns the loss"
            )
        if self._space.device.recording is not None:
            raise UnsupportedError(
                f"{type(self).__name__} decides on the host and cannot be recorded; compile what its closure does"
            )
        if not grad_enabled():
            raise UnsupportedError("within no_grad() a closure computes no gradients")
        self._refresh()
        return self._minimize(closure)

    def _evaluate(self, closure: Closure, direction: Tensor | None = None) -> Reading:
        """Return the `Evaluation` at the current parameters. One read, of 65 to 67 numbers."""
        result = closure()
        gradient = self._space.gradient()
        reductions = [fold_magnitudes(gradient), sum_of_magnitudes(gradient)]
        if direction is not None:
            reductions.append(dot(gradient, direction))
        if isinstance(result, Tensor):
            if result.size != 1 or result.dtype is not FLOAT32:
                raise ShapeError(f"a closure must return the loss, a float32 tensor of one element, not {result!r}")
            reductions.append(result.detach())
        values = yield from read(*reductions)
        magnitudes, (total,), *remaining = values
        loss = remaining.pop()[0] if isinstance(result, Tensor) else float(result)
        slope = remaining[0][0] if remaining else 0.0
        return Evaluation(loss, result, gradient, slope, largest([*magnitudes, total * 0.0]), total)

    # Checks.

    @property
    def skipped_steps(self) -> int:
        """Always 0: no step is skipped."""
        return 0

    def _view_to_check(self) -> View:
        return sum_of(apply("vectors", "count_nonfinite", self._space.values())).view

    # State.

    @property
    def state(self) -> dict[Parameter, dict[str, Any]]:
        """The state, under the first parameter as in torch: numbers, vectors over all parameters, lists of both."""
        entry = self._state()
        return {self._params()[0]: entry} if entry else {}

    def state_views(self) -> dict[str, View]:
        views = {}
        for name, value in self._state().items():
            for number, vector in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(vector, Tensor):
                    views[f"{name}.{number}"] = vector.view
        return views

    def state_reader(self) -> Callable[[Mapping[str, memoryview]], dict[str, Any]]:
        space, entry, groups = self._space, self._state(), self.numbered_groups()

        def make(contents: Mapping[str, memoryview]) -> dict[str, Any]:
            values = {}
            for name, value in entry.items():
                vectors = value if isinstance(value, list) else [value]
                if vectors and isinstance(vectors[0], Tensor):
                    content = b"".join(space.compact(contents[f"{name}.{number}"]) for number in range(len(vectors)))
                    shape = (len(vectors), space.count) if isinstance(value, list) else (space.count,)
                    values[name] = _host_array(content, shape)
                else:
                    values[name] = value
            return {"state": {0: values} if values else {}, "param_groups": groups}

        return make

    def _after_state_dict(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Convert the state's arrays, as a checkpoint stores them, to lists of vectors, as torch has them."""
        lists = {name for name, value in self._state().items() if isinstance(value, list)}
        for entry in state_dict["state"].values():
            entry.update({name: list(entry[name]) for name in lists & set(entry)})
        return super()._after_state_dict(state_dict)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        state_dict = self._hooks.before_load(self, state_dict)
        check_kind(state_dict, self)
        try:
            (saved,), entries = list(state_dict["param_groups"]), dict(state_dict["state"])
            count, names = len(saved["params"]), list(saved.get("param_names", ()))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError('a state dict has "state", and one group in "param_groups"') from error
        group = self.param_groups[0]
        if count != len(group["params"]) or len(entries) > 1:
            raise CheckpointError(
                "loaded state dict has a parameter group that doesn't match the size of optimizer's group"
            )
        if names and group.get("param_names") and names != group["param_names"]:
            raise CheckpointError("the state dict has its parameters in another order, and vectors over all of them")
        options = {name: saved[name] for name in self.defaults if name in saved}
        try:
            self.validate({**self.defaults, **options})
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"the state dict has an option out of range: {error}") from error
        entry = self._checked(next(iter(entries.values()), {}))
        group.update(options)
        self._take_state(entry)
        self._hooks.after_load(self)

    def _vector(self, name: str, value: Any) -> Tensor:
        """Return the vector of an array in a state dict, on the device."""
        content = host_data(value, FLOAT32)
        if content.shape != (self._space.count,):
            raise CheckpointError(
                f"'{name}' has the shape {content.shape}, but there are {self._space.count} parameters in all"
            )
        return self._space.upload(content.content)

    # Recovery.

    def recovery_views(self) -> Mapping[str, View]:
        return {**self.state_views(), "place": self._params()[0].view}  # the device, before the first step

    def revive(self, device: Device) -> None:
        assert self._snapshot is not None
        self._build()
        self._write_state(self._snapshot)


def _host_array(content: bytes, shape: tuple[int, ...]) -> Any:
    """Return NumPy's array, or where NumPy is absent a memoryview, and a list of these where there are rows."""
    try:
        import numpy as np
    except ImportError:
        flat = memoryview(content).cast("f")
        return flat if len(shape) == 1 else [flat[start : start + shape[1]] for start in range(0, len(flat), shape[1])]
    return np.frombuffer(content, np.float32).reshape(shape).copy()
