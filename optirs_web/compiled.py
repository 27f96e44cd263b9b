"""`compile`: a training step recorded once and replayed as one submit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from .errors import UnsupportedError
from .hostdata import HostData, host_data
from .runtime.buffer import View
from .runtime.device import Device
from .runtime.program import Program, StaleProgramError
from .runtime.registry import device as device_of
from .tensors import Parameter, Tensor, empty

__all__ = ["Compiled", "compile"]


class _Recorded(NamedTuple):
    """One recording, with the tensors that its replay reads and writes."""

    program: Program
    inputs: list[Tensor]
    output: Any
    grads_after: list[tuple[Tensor, Tensor | None]]


class Compiled:
    """What `compile` returns: call it like the step itself."""

    def __init__(self, step: Callable[..., Any], device: str | Device | None = None) -> None:
        functools.update_wrapper(self, step)
        self._step = step
        self._asked_device = device
        self._recorded: dict[Hashable, list[_Recorded]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Upload the arguments, replay, and return the step's results in memory of their own."""
        device = self._device(arguments)
        prepared = [_prepare(one) for one in arguments]
        key = (device.name, *(_signature(one) for one in prepared))
        for _ in range(2):
            recorded = self._find(key) or self._record(key, device, prepared)
            self._upload(recorded, prepared)
            try:
                return self._replay(device, recorded)
            except StaleProgramError:
                self._recorded.clear()
        raise UnsupportedError("the step moves the buffers that it has bound itself; build optimizers outside")

    def _device(self, arguments: tuple[Any, ...]) -> Device:
        if self._asked_device is not None:
            return device_of(self._asked_device)
        return next((one.device for one in arguments if isinstance(one, Tensor)), None) or device_of(None)

    def _find(self, key: Hashable) -> _Recorded | None:
        """A recording that began with gradients on the same tensors as there are now."""
        for one in self._recorded.get(key, ()):
            before = one.program.grads_before.values()
            if all((tensor._grad is None) == (grad is None) for tensor, grad in before):
                return one
        return None

    def _record(self, key: Hashable, device: Device, prepared: list[Any]) -> _Recorded:
        inputs = [_input(device, one) for one in prepared]
        with device.record() as program:
            output = self._step(*(given if one is None else one for one, given in zip(inputs, prepared, strict=True)))
        _each_tensor(output)
        after = [(tensor, tensor._grad) for tensor, _ in program.grads_before.values()]
        recorded = _Recorded(program, [one for one in inputs if one is not None], output, after)
        for tensor, grad in program.grads_before.values():
            tensor._grad = grad
        self._recorded.setdefault(key, []).append(recorded)
        return recorded

    @staticmethod
    def _upload(recorded: _Recorded, prepared: list[Any]) -> None:
        values = [one for one in prepared if isinstance(one, (Tensor, HostData))]
        for target, value in zip(recorded.inputs, values, strict=True):
            if isinstance(value, HostData):
                target.device.write(target.view, value.content)
            elif value.device is target.device:
                target.device.copy(value.view, target.view)
            else:
                target.device.write(target.view, value.device.read(value.view))

    @staticmethod
    def _replay(device: Device, recorded: _Recorded) -> Any:
        copies: dict[int, Tensor] = {}

        def copy_results() -> None:
            for one in _each_tensor(recorded.output):
                copies[id(one)] = one if isinstance(one, Parameter) else _copy(one)

        device.replay(recorded.program, then=copy_results)
        for tensor, grad in recorded.grads_after:
            tensor._grad = grad
        return _replace(recorded.output, copies)


def compile(step: Callable[..., Any], device: str | Device | None = None) -> Compiled:
    """Record `step` at its first call and replay it afterwards: one submit, no Python per operation.

    The arguments of the step are tensors or arrays (uploaded at each call into fixed buffers) and other
    hashable values, which are constants of the recording. Each combination of shapes, types and constants
    is recorded once. The step may differentiate and use optimizers made outside; it cannot read values,
    and Python in it runs only while it is recorded. Results come back in memory of their own.

    Args:
        step: a function of tensors that returns tensors in any nesting of tuples, lists and dicts, or None.
        device: where to put arrays; by default that of the first tensor argument, then `optirs_web.device()`.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([3.0], device="cpu")
        >>> opt = ow.optim.SGD([w], lr=0.5)
        >>> def train_step(x):
        ...     opt.zero_grad()
        ...     loss = ((w - x) * (w - x)).sum()
        ...     loss.backward()
        ...     opt.step()
        ...     return loss
        >>> step = ow.compile(train_step, device="cpu")
        >>> step([1.0]).item(), step([1.0]).item(), w.tolist()
        (4.0, 0.0, [1.0])
    """
    return Compiled(step, device)


def _prepare(argument: Any) -> Any:
    """A tensor, host data, or a constant as it is."""
    if isinstance(argument, (Tensor, str, bool, int, float, type(None))):
        return argument
    if isinstance(argument, (list, tuple)) or hasattr(argument, "__array__") or hasattr(argument, "__buffer__"):
        return host_data(argument)
    try:
        return host_data(memoryview(argument))
    except TypeError:
        return argument


def _signature(argument: Any) -> Hashable:
    if isinstance(argument, (Tensor, HostData)):
        return ("tensor", argument.shape, argument.dtype.name)
    try:
        hash(argument)
    except TypeError:
        raise UnsupportedError(
            f"an argument of a compiled step is a tensor, an array or hashable, not {argument!r}"
        ) from None
    return ("constant", type(argument), argument)


def _input(device: Device, argument: Any) -> Tensor | None:
    if not isinstance(argument, (Tensor, HostData)):
        return None
    nbytes = argument.view.nbytes if isinstance(argument, Tensor) else argument.content.nbytes
    buffer = device.allocate_zeroed(max(4, nbytes))
    return Tensor(View(buffer, 0, nbytes), argument.shape, argument.dtype)


def _copy(source: Tensor) -> Tensor:
    result = empty(source.shape, source.dtype, source.device)
    source.device.copy(source.view, result.view)
    return result


def _each_tensor(output: Any) -> list[Tensor]:
    match output:
        case None:
            return []
        case Tensor():
            return [output]
        case dict():
            return [tensor for one in output.values() for tensor in _each_tensor(one)]
        case list() | tuple():
            return [tensor for one in output for tensor in _each_tensor(one)]
    raise UnsupportedError(
        f"a compiled step returns tensors in tuples, lists and dicts, not {type(output).__name__}; "
        "other values would be those of the recording"
    )


def _replace(output: Any, copies: dict[int, Tensor]) -> Any:
    match output:
        case Tensor():
            return copies[id(output)]
        case dict():
            return {key: _replace(one, copies) for key, one in output.items()}
        case tuple() if hasattr(output, "_fields"):
            return type(output)(*(_replace(one, copies) for one in output))
        case list() | tuple():
            return type(output)(_replace(one, copies) for one in output)
    return output
