"""The device on which an operation is predicted to take less time, by rates that were measured, with transfers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ..autograd import grad_enabled, no_grad
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32
from ..runtime.launches import Recorded
from ..runtime.locks import ForkSafeLock
from ..tensors import Tensor, empty
from . import cache
from .copies import is_at, with_tensors
from .rates import Rates, at, measure, seconds_for

__all__ = ["THRESHOLD", "Call", "Fastest", "Prediction"]

THRESHOLD = 1.5
"""Predictions of mixed work are off by about that factor."""

_PASSES = 3
"""Forward and backward take about so many times what forward takes."""

_lock = ForkSafeLock()
"""Held while a device is measured."""


@dataclass(slots=True)
class Call:
    """An operation that is to be run, with the tensors among its arguments."""

    operation: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    tensors: list[Tensor]

    def key(self) -> tuple[Any, ...]:
        """Return what its time depends on: shapes, types, and arguments that are neither tensors nor floats."""
        parts: list[Any] = [self.operation]
        for argument in self.arguments:  # a microsecond counts here
            is_plain = type(argument) is Tensor and argument.dtype is FLOAT32
            parts.append(argument.shape if is_plain else _key(argument))
        for name, option in self.options.items():
            parts += name, _key(option)
        return tuple(parts)

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> Call:
        """Return the call with other tensors."""
        arguments = tuple(with_tensors(argument, change) for argument in self.arguments)
        options = {name: with_tensors(option, change) for name, option in self.options.items()}
        return Call(self.operation, arguments, options, [])

    def run(self) -> Any:
        """Run it where its operands are stored."""
        return self.operation(*self.arguments, **self.options)


def _key(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.shape if argument.dtype is FLOAT32 else (argument.dtype.name, argument.shape)
    if argument is None or isinstance(argument, (int, str)):
        return argument
    if isinstance(argument, (list, tuple)):
        return len(argument), *map(_key, argument[:8])
    return type(argument).__name__


class _EnoughError(Exception):
    """Ends a recording that nobody replays."""


def _launches_of(call: Call) -> Sequence[Recorded]:
    """Record what an operation launches, over tensors without memory; nothing where it fails."""
    device = call.tensors[0].device
    launches: list[Recorded] = []
    with suppress(Exception), no_grad(), device.record(fuses=False) as program:  # it fails again when it is run
        call.with_tensors(lambda tensor: empty(tensor.shape, tensor.dtype, device)).run()
        launches = program.as_recorded
        raise _EnoughError
    return launches


class Prediction(NamedTuple):
    """The device that an operation would run on, and the times that say so.

    Attributes:
        device: where it would run under the policy.
        seconds: by the names of the devices that were compared, what the operation would take there, transfers
            included; three times the forward pass where gradients are recorded. Infinite where the limits of a device
            do not allow it. Empty where the policy compares no times.
        transfers: the part of `seconds` that carries operands there, and their gradients back.
    """

    device: Device
    seconds: dict[str, float]
    transfers: dict[str, float]


class _Predictions:
    """The times of operations on two devices, each predicted once.

    Attributes:
        devices: the processor and a GPU.
        seconds: by the key of a call, those on both.
    """

    def __init__(self, devices: tuple[Device, Device]) -> None:
        self.devices = devices
        self.seconds: dict[Any, tuple[float, float]] = {}

    @cached_property
    def rates(self) -> tuple[Rates, Rates]:
        """The rates of both devices, measured now where none are kept."""
        with _lock:
            rates = {device: cache.load(device.info) for device in self.devices}
            missing = [device for device, kept in rates.items() if kept is None]
            for device, own in zip(missing, measure(missing) if missing else [], strict=True):
                rates[device] = own
                cache.store(device.info, own)
        cpu, gpu = (rates[device] for device in self.devices)
        assert cpu is not None
        assert gpu is not None
        return cpu, gpu

    def of(self, call: Call) -> tuple[float, float]:
        """Return the seconds of an operation on both devices, without transfers."""
        key = call.key()
        seconds = self.seconds.get(key)
        if seconds is None:
            launches = _launches_of(call)
            cpu, gpu = (seconds_for(launches, rates) for rates in self.rates)
            seconds = self.seconds[key] = cpu, gpu
        return seconds


_predictions: dict[tuple[Device, Device], _Predictions] = {}


def _predictions_for(devices: tuple[Device, Device]) -> _Predictions:
    """Return those that earlier policies have made for these devices, and forget those for devices that are lost."""
    for pair in [pair for pair in _predictions if any(device.lost for device in pair)]:
        _predictions.pop(pair, None)
    return _predictions.setdefault(devices, _Predictions(devices))


class Fastest:
    """The policy "auto" over the processor and a GPU.

    An operation runs where its operands are stored, unless the other device is predicted to take less than its time
    there divided by the threshold, with the transfers that this needs.
    """

    def __init__(self, cpu: Device, gpu: Device, threshold: float) -> None:
        """Take the threshold and the devices; rates are measured when the first operation is placed."""
        self.candidates = (cpu, gpu)
        self._threshold = threshold
        self._predictions = _predictions_for(self.candidates)

    def reopened(self, devices: Sequence[Device]) -> Fastest:
        """Return the policy over devices that take the place of lost ones."""
        cpu, gpu = devices
        return Fastest(cpu, gpu, self._threshold)

    def device_for(self, call: Call) -> Device:
        """Return the device that an operation runs on."""
        seconds = self._predictions.of(call)
        faster = self.candidates[seconds[0] > seconds[1]]
        for tensor in call.tensors:
            if tensor.strided.view.buffer.device is not faster:
                return self._compared(call, seconds).device
        return faster

    def prediction(self, call: Call) -> Prediction:
        """Return the device that an operation would run on, with the times on both."""
        return self._compared(call, self._predictions.of(call))

    def cannot_run(self, call: Call, device: Device) -> None:
        """Run the operation on the other device from now on: the limits of this one do not allow it."""
        cpu, gpu = self._predictions.of(call)
        is_cpu = device is self.candidates[0]
        self._predictions.seconds[call.key()] = (float("inf"), gpu) if is_cpu else (cpu, float("inf"))

    def _compared(self, call: Call, seconds: tuple[float, float]) -> Prediction:
        has_backward = grad_enabled() and any(tensor.requires_grad for tensor in call.tensors)
        passes = _PASSES if has_backward else 1
        transfers = [self._carrying(call.tensors, device) for device in self.candidates]
        times = [passes * own + transfer for own, transfer in zip(seconds, transfers, strict=True)]
        home = min((0, 1), key=lambda number: (transfers[number], times[number]))
        goes = self._threshold * times[1 - home] < times[home]
        names = [device.name for device in self.candidates]
        return Prediction(
            self.candidates[1 - home if goes else home],
            dict(zip(names, times, strict=True)),
            dict(zip(names, transfers, strict=True)),
        )

    def _carrying(self, tensors: Sequence[Tensor], device: Device) -> float:
        """Seconds to bring the operands there that are not, and gradients back."""
        gpu = self._predictions.rates[1]
        curve = gpu.up if device is self.candidates[1] else gpu.down
        return sum(
            at(curve, tensor.size * tensor.dtype.itemsize) * (2 if tensor.requires_grad and grad_enabled() else 1)
            for tensor in tensors
            if not is_at(tensor, device)
        )
