"""`placement`: the policies, and how an operation is run under one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import EllipsisType
from typing import Any, Literal, Protocol, Self, get_args
from weakref import ref

from ..autograd import runs_backward
from ..compiled import Compiled
from ..errors import DeviceLimitError, DeviceNotAvailableError, OutOfDeviceMemoryError
from ..ops import calls
from ..runtime.backend import AdapterInfo
from ..runtime.device import Device
from ..runtime.locks import ForkSafeLock
from ..runtime.modes import Block, Mode
from ..runtime.registry import adapters, device as device_of
from ..tensors import Tensor
from .choice import THRESHOLD, Call, Fastest, Prediction
from .copies import is_at, moved, tensors_in, with_tensors
from .fallback import holds, is_of_a_limit, other_device, warn_once
from .steps import place_step

__all__ = ["Policy", "current", "placement"]

PolicyName = Literal["auto", "gpu", "cpu", "minimize_transfers"]

_STAY_WITH_FIRST = {
    "add_into",
    "broadcast_to",
    "chunk",
    "clone",
    "embedding",
    "flatten",
    "getitem",
    "in_order",
    "permute",
    "reshape",
}
_STAY_WITH_FIRST |= {"split", "squeeze", "to_device", "transpose", "unsqueeze"}
"""Operations that run on the device of their first operand: most return a view of its memory."""


class Policy(Protocol):
    """Says where work runs."""

    @property
    def candidates(self) -> Sequence[Device]:
        """The devices that a step may be timed on; one if it is to run there; none if it stays where it is."""

    def reopened(self, devices: Sequence[Device]) -> Policy:
        """Return the policy with these devices in place of the candidates, of which one was lost."""

    def device_for(self, call: Call) -> Device:
        """Return the device that an operation runs on."""

    def prediction(self, call: Call) -> Prediction:
        """Return the device that an operation would run on, with the times that say so."""

    def cannot_run(self, call: Call, device: Device) -> None:
        """Note that the limits of this device do not allow the operation: it runs elsewhere."""


class _Forced:
    """Runs everything on one device."""

    def __init__(self, device: Device) -> None:
        self.candidates = (device,)

    def reopened(self, devices: Sequence[Device]) -> _Forced:
        return _Forced(devices[0])

    def device_for(self, call: Call) -> Device:
        return self.candidates[0]

    def prediction(self, call: Call) -> Prediction:
        return Prediction(self.candidates[0], {}, {})

    def cannot_run(self, call: Call, device: Device) -> None:
        pass


class _FewestBytes:
    """Runs each operation on the device that has most bytes of its operands."""

    candidates: Sequence[Device] = ()

    def reopened(self, devices: Sequence[Device]) -> _FewestBytes:
        return self

    def device_for(self, call: Call) -> Device:
        devices = dict.fromkeys(tensor.device for tensor in call.tensors)
        if len(devices) == 1:
            return call.tensors[0].device
        return max(devices, key=lambda device: sum(tensor.size for tensor in call.tensors if is_at(tensor, device)))

    def prediction(self, call: Call) -> Prediction:
        return Prediction(self.device_for(call), {}, {})

    def cannot_run(self, call: Call, device: Device) -> None:
        pass


_inner: Mode[Policy | EllipsisType | None] = Mode("placement", ...)
"""Policy of the innermost block of this thread or task; `...` outside of all."""

_for_all_threads: list[tuple[ref[placement], Policy | None]] = []
"""Policies set outside of blocks, for all threads, each with the object that set it, which can become a block."""

_lock = ForkSafeLock()
"""Held while that changes."""

_only_predicts: Mode[bool] = Mode("placement.would_run", False)
"""True where operations raise `_AnswerError`, with the device that they would run on, in place of running."""


def current() -> Policy | None:
    """Return the policy of this thread or task. A device of it that was lost or closed is reopened."""
    policy = _inner.get()
    is_inner = not isinstance(policy, EllipsisType)
    if isinstance(policy, EllipsisType):
        policy = _for_all_threads[-1][1] if _for_all_threads else None
    if policy is not None and any(device.lost for device in policy.candidates):
        devices = [device_of(device.info.label) if device.lost else device for device in policy.candidates]
        reopened = policy.reopened(devices)
        if is_inner:
            _inner.replace(reopened)
        else:
            with _lock:
                _for_all_threads[:] = [(by, reopened if other is policy else other) for by, other in _for_all_threads]
        return reopened
    return policy


class placement(Block["Policy | EllipsisType | None"]):
    """Say where operations run: from the call on, or in a block, after which the policy is the one before.

    Operands that lie elsewhere are carried over, each once as long as it does not change. A result stays where it was
    computed. The backward pass of an operation runs where it ran itself; the gradient of a leaf goes to the leaf. Views
    (`reshape`, slices) and `embedding` stay with what they look at. What makes tensors is not moved, nor is a
    `custom_op`. A policy continues with a device that was lost or closed once it is reopened.

    What the limits of a device do not allow runs on the other one, with a warning at the first time; under "gpu" and
    "cpu" its result is carried back.

    A block holds in its own thread or asyncio task alone. A call outside of all blocks holds in all threads, those that
    run already and those that start later, wherever they are in no block of their own; one in a block, to its end.

    A compiled step runs on one device as a whole, unless `compile` was given one: the parameters, optimizers and
    buffers that it uses move there, without gradients. With "auto" its first calls are run on each device in turn and
    timed, and the rest on the faster. A step that shares parameters with one that was placed before goes with it; one
    with `recover=True`, or with gradients that are still to be added to, stays where it is.

    Outside of compiled steps "auto" compares times that are predicted for each operation by itself, from its sizes and
    from what was measured on the machine for work of its kind, with transfers counted in: the operation leaves the
    device where its operands are stored if the other one is predicted to be faster by `threshold`. Nothing is timed
    while a program runs; `would_run` tells the times. Since devices round differently, a run with "auto" is not
    repeatable bit for bit where operands are on several devices, or steps are compiled.

    Moving waits for values, so a browser must be able to wait. In a browser without NumPy there is no device `cpu`:
    "auto" is then the one device.

    Args:
        policy: "gpu" and "cpu" for that device; "minimize_transfers" for the one that has most bytes of the operands;
            "auto" for the faster one, by what was measured on this machine, with transfers counted in; None for no
            policy, where operands on two devices are an error. The first use of "auto" measures both devices, for about
            two seconds, and keeps the figures in the user's cache folder.
        gpu: which GPU is meant, as `optirs_web.device` takes it; by default the first in hardware, or the first at all.
        threshold: for "auto", how many times faster the other device has to be before operands are carried there: 1
            or more. Infinite, an operation stays where all of its operands are.

    Raises:
        ValueError: the policy is none of these, `gpu` is the processor, or the threshold is less than 1.
        DeviceNotAvailableError: there is no such device.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.ones((2, 2), device="cpu")
        >>> with ow.placement("cpu"):
        ...     (x @ x).device.name
        'cpu'
    """

    def __init__(
        self,
        policy: PolicyName | None = "auto",
        *,
        gpu: str | Device | None = None,
        threshold: float = THRESHOLD,
    ) -> None:
        chosen = _policy_of(policy, gpu, threshold)
        super().__init__(_inner, chosen)
        self._replaced = _inner.get()
        self._is_outright = True
        if not isinstance(self._replaced, EllipsisType):
            _inner.replace(chosen)
            return
        with _lock:
            fixed = [number for number, (by, _) in enumerate(_for_all_threads) if by() is None]
            del _for_all_threads[: max(fixed, default=0)]  # a policy below one that stays cannot return
            _for_all_threads.append((ref(self), chosen))

    def _take_back(self) -> None:
        """Undo the effect outside of a block: the object is used as one."""
        if self._is_outright:
            self._is_outright = False
            if not isinstance(self._replaced, EllipsisType):
                _inner.replace(self._replaced)
            with _lock:
                _for_all_threads[:] = [(by, policy) for by, policy in _for_all_threads if by() is not self]

    def __enter__(self) -> Self:
        self._take_back()
        super().__enter__()
        return self

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, called inside such a block."""
        self._take_back()
        return Block(self._mode, self._value)(function)

    @staticmethod
    def would_run(operation: Callable[..., Any], *arguments: Any, **options: Any) -> Prediction:
        """Return the device that an operation would run on under the policy here, and under "auto" the predicted times.

        Nothing is run, and nothing is carried.

        Args:
            operation: one of `optirs_web.ops`, a method of a tensor, or a function whose first operation is meant.
            arguments: its positional arguments, tensors among them.
            options: the others.

        Raises:
            ValueError: no operation over tensors was called.

        Example:
            >>> import optirs_web as ow
            >>> x = ow.ones((2, 2), device="cpu")
            >>> with ow.placement("cpu"):
            ...     ow.placement.would_run(ow.ops.matmul, x, x).device.name
            'cpu'
        """
        calls.place = _run_where_placed
        with Block(_only_predicts, True):
            try:
                operation(*arguments, **options)
            except _AnswerError as answer:
                return answer.prediction
        name = getattr(operation, "__name__", type(operation).__name__)
        raise ValueError(f"{name} called no operation over tensors, so there is nothing to place")


class _AnswerError(Exception):
    """Leaves an operation that is not to be run, with where it would be."""

    def __init__(self, prediction: Prediction) -> None:
        super().__init__("an operation was asked about")
        self.prediction = prediction


def _policy_of(name: str | None, gpu: str | Device | None, threshold: float) -> Policy | None:
    if not threshold >= 1:
        raise ValueError(f"the threshold of a placement must be 1 or more, not {threshold!r}")
    if name is None:
        return None
    if name not in get_args(PolicyName):
        raise ValueError(f"a placement must be one of {', '.join(get_args(PolicyName))}, or None, not {name!r}")
    calls.place = _run_where_placed
    Compiled.place = _device_of_step
    if name == "minimize_transfers":
        return _FewestBytes()
    if name == "auto":
        devices = _all_devices(gpu)
        return Fastest(devices[0], devices[1], threshold) if len(devices) > 1 else _Forced(devices[0])
    return _Forced(device_of("cpu") if name == "cpu" else _gpu(gpu))


def _all_devices(gpu: str | Device | None) -> list[Device]:
    """Return the processor and the GPU, or the only one that exists."""
    devices, reasons = [], []
    for find in (partial(device_of, "cpu"), partial(_gpu, gpu)):
        try:
            devices.append(find())
        except DeviceNotAvailableError as error:
            reasons.append(str(error))
    if not devices or (gpu is not None and len(devices) == len(reasons) == 1 and devices[0].name == "cpu"):
        raise DeviceNotAvailableError("; ".join(reasons))
    return devices


def _gpu(requested: str | Device | None) -> Device:
    if requested is not None:
        gpu = device_of(requested)
        if gpu.name == "cpu":
            raise ValueError(f"the gpu of a placement cannot be the processor, as {requested!r} is")
        return gpu
    default = device_of(None)
    if default.name != "cpu":
        return default
    infos: list[AdapterInfo] = [info for info in adapters() if info.available]
    if not infos:
        raise DeviceNotAvailableError("there is no GPU here, in hardware or software; optirs_web.devices() says why")
    return device_of(min(infos, key=lambda info: (info.software, info.reason != "")).label)


def _run_where_placed(operation: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    policy = current()
    if policy is None and not _only_predicts.get():
        return operation(*arguments, **options)
    tensors = tensors_in(arguments, options)
    if not tensors:
        return operation(*arguments, **options)
    call = Call(operation, arguments, options, tensors)
    if _only_predicts.get():
        raise _AnswerError(_predicted(policy or _FewestBytes(), call))
    assert policy is not None
    with Block(_inner, None):  # what an operation is made of stays together
        target = _target(policy, call)
        try:
            return _run_on(target, call)
        except (DeviceLimitError, OutOfDeviceMemoryError) as error:
            return _run_elsewhere(policy, call, target or tensors[0].device, error)


def _run_on(target: Device | None, call: Call) -> Any:
    if target is not None and any(tensor.device is not target for tensor in call.tensors):
        call = call.with_tensors(partial(_moved, target))
    return call.run()


def _run_elsewhere(policy: Policy, call: Call, device: Device, error: Exception) -> Any:
    """Run on another device what this one cannot run, with the result where the policy has it, or raise the error."""
    other = None
    if Device.recorder() is None and is_of_a_limit(error, device):
        other = _other(device)
    if other is None:
        raise error
    policy.cannot_run(call, device)
    result = _run_on(other, call)
    warn_once(call.operation.__name__, [value.shape for value in call.tensors], error, device, other)
    if tuple(policy.candidates) == (device,):
        result = with_tensors(result, lambda value: moved(value, device) if holds(device, value) else value)
    return result


def _other(device: Device) -> Device | None:
    return other_device(device, partial(_gpu, None), partial(device_of, "cpu"))


def _moved(target: Device, x: Tensor) -> Tensor:
    return moved(x, target)


def _target(policy: Policy, call: Call) -> Device | None:
    """Return the device to run an operation on; None for the one that it runs on by itself."""
    bound, device = _bound_to(call)
    return device if bound else policy.device_for(call)


def _bound_to(call: Call) -> tuple[bool, Device | None]:
    """Return whether the policy has no say, and where the operation runs then; None for where it was called."""
    recorder = Device.recorder()
    if recorder is not None:  # a step runs where its parameters are, which `steps` finds out; constants come along
        is_elsewhere = any(tensor._tracked is not None and tensor.device is not recorder for tensor in call.tensors)
        return True, None if is_elsewhere else recorder
    if call.operation.__name__ in _STAY_WITH_FIRST:
        return True, call.tensors[0].device
    if runs_backward():
        return True, _FewestBytes().device_for(call)  # what ran forward on one device goes back there
    return False, None


def _predicted(policy: Policy, call: Call) -> Prediction:
    is_bound, device = _bound_to(call)
    if is_bound:
        return Prediction(device or call.tensors[0].device, {}, {})
    with Block(_inner, None):
        return policy.prediction(call)


def _device_of_step(step: Compiled, prepared: list[Any]) -> Device | None:
    policy = current()
    return None if policy is None else place_step(step, prepared, policy.candidates, _other)
