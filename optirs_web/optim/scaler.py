"""Loss scaling, which keeps small gradients above the smallest number of a 16-bit float."""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ..errors import CheckpointError, UnsupportedError
from ..launch import need_one_device
from ..ops.arithmetic import multiply
from ..recovery import keep_track
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32
from ..runtime.kernels import cooperative
from ..runtime.program import Program
from ..runtime.registry import device as device_of
from ..tensors import Tensor
from .optimizer import LARGEST_FLOAT32, Optimizer

__all__ = ["GradScaler"]

_READY, _UNSCALED, _STEPPED = "ready", "unscaled", "stepped"
_MOST_STEPS = (1 << 24) - 1  # a float32 counts them


def _within(low: float, high: float, words: str, make: Callable[[Any], Any] = float) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not low <= value <= high or (make is int and value != int(value)):
            raise ValueError(f"{words} It is {value}.")
        return make(value)

    return check


_CHECKED = {
    "scale": _within(2.0**-126, LARGEST_FLOAT32, "The scale must be > 0.0 and a normal float32."),
    "growth_factor": _within(1 + 2.0**-23, LARGEST_FLOAT32, "The growth factor must be > 1.0."),
    "backoff_factor": _within(2.0**-149, 1 - 2.0**-24, "The backoff factor must be < 1.0 and > 0.0."),
    "growth_interval": _within(1, _MOST_STEPS, "The growth interval must be >= 1.", int),
    "_growth_tracker": _within(0, _MOST_STEPS, "The growth tracker must be >= 0.", int),
}
"""The entries of a state dict, and functions that convert each to a number or raise ValueError."""


class GradScaler:
    """Scales a loss, and the steps back (Micikevicius et al. 2018, arXiv:1710.03740), as `torch.amp.GradScaler`.

    The scale is on the device and the host never reads it in a step: gradients are divided by it within the optimizer's
    own kernels, a step whose gradients are not finite is skipped and not counted, and `update` changes the scale. So a
    recorded step keeps scaling.

    Args:
        device: the device of the losses, as `optirs_web.device` takes it.
        init_scale: the first scale.
        growth_factor: the factor of the scale after `growth_interval` consecutive steps with finite gradients.
        backoff_factor: its factor after gradients that were not finite.
        growth_interval: see `growth_factor`.
        enabled: if False, losses and steps are not changed.

    Raises:
        ValueError: a factor or the interval is out of range.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([3.0], device="cpu")
        >>> optimizer, scaler = ow.optim.SGD([w], lr=0.5), ow.optim.GradScaler("cpu")
        >>> scaler.scale((w * w).sum()).backward()
        >>> w.grad.tolist()
        [393216.0]
        >>> scaler.step(optimizer); scaler.update(); w.tolist()
        [0.0]
    """

    def __init__(
        self,
        device: str | Device | None = None,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._enabled = enabled
        if not enabled:
            return
        scale = _CHECKED["scale"](init_scale)
        self.set_growth_factor(growth_factor)
        self.set_backoff_factor(backoff_factor)
        self.set_growth_interval(growth_interval)
        self._snapshot: memoryview | None = None
        self._allocate_on(device_of(device))
        self._write(scale, 0)
        keep_track(self)

    def _allocate_on(self, device: Device) -> None:
        self._device = device
        self._buffer = device.allocate_zeroed(12)
        self._stages: dict[int, tuple[weakref.ref[Optimizer], str]] = {}
        self._recording: weakref.ref[Program] | None = None

    def _write(self, scale: float, tracker: int) -> None:
        content = struct.pack("<3f", scale, 0.0, tracker)
        self._device.write(View.whole(self._buffer), memoryview(content))

    @property
    def _scale(self) -> Tensor:
        return Tensor(View(self._buffer, 0, 4), (), FLOAT32)

    @property
    def _state(self) -> View:
        return View.whole(self._buffer)

    def is_enabled(self) -> bool:
        """Return whether it is enabled."""
        return self._enabled

    def scale(self, outputs: Any) -> Any:
        """Return the loss times the scale; or all losses in lists, tuples and dicts."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return multiply(outputs, self._scale)
        if isinstance(outputs, Mapping):
            return {key: self.scale(output) for key, output in outputs.items()}
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(output) for output in outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    # The stage of each optimizer since the last update.

    def _forget_other_recordings(self) -> None:
        """Drop the stages of another recording, which was abandoned, or ended between a step and its update."""
        recording = self._device.recording
        recorded = self._recording() if self._recording is not None else None
        if recording is not recorded:
            self._recording = weakref.ref(recording) if recording is not None else None
            self._stages.clear()

    def _stage(self, optimizer: Optimizer) -> str:
        self._forget_other_recordings()
        optimizer_ref, stage = self._stages.get(id(optimizer), (None, _READY))
        return stage if optimizer_ref is not None and optimizer_ref() is optimizer else _READY

    def _set_stage(self, optimizer: Optimizer, stage: str) -> None:
        self._stages[id(optimizer)] = weakref.ref(optimizer), stage

    def _check_device(self, tensors: Sequence[Tensor]) -> None:
        need_one_device("GradScaler", self._scale, *tensors)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the optimizer's gradients by the scale, in place, to read or change them before `step`.

        Transforms of the optimizer see them without the scale in any case. Of `SparseRows` the values change.

        Raises:
            RuntimeError: they are unscaled already, or the step has been taken.
            ShapeError: the optimizer is on another device.
        """
        if not self._enabled:
            return
        self._check_device(optimizer._params())
        stage = self._stage(optimizer)
        if stage == _UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if stage == _STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        optimizer.unscale_grads(self._state)
        self._set_stage(optimizer, _UNSCALED)

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Call `optimizer.step(*args, **kwargs)` with unscaled gradients; the step is skipped if one is not finite.

        Raises:
            RuntimeError: it was called since the last update, or with a closure.
            ShapeError: the optimizer is on another device.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if args or "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_device(optimizer._params())
        stage = self._stage(optimizer)
        if stage == _STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        result = optimizer.scaled_step(None if stage == _UNSCALED else self._state, **kwargs)
        self._set_stage(optimizer, _STEPPED)
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Change the scale by whether gradients since the last update were finite, or to `new_scale`.

        Raises:
            RuntimeError: no gradients were checked.
            ValueError: `new_scale` is out of range, or not one number on the scaler's device.
        """
        if not self._enabled:
            return
        self._forget_other_recordings()
        if new_scale is not None:
            self._set_scale(new_scale)
        elif not self._stages:
            raise RuntimeError("No inf checks were recorded prior to update.")
        else:
            factors = (self._growth_factor, self._backoff_factor, float(self._growth_interval))
            self._device.dispatch(cooperative("update_scale"), [self._state], 1, factors)
        self._stages.clear()

    def _set_scale(self, new_scale: float | Tensor) -> None:
        if isinstance(new_scale, Tensor):
            if new_scale.size != 1 or new_scale.dtype is not FLOAT32:
                raise ValueError("new_scale should be a float or a 1-element float32 Tensor")
            self._check_device([new_scale])
            self._device.copy(new_scale.view, self._scale.view)
        else:
            content = struct.pack("<f", _CHECKED["scale"](new_scale))
            self._device.write(self._scale.view, memoryview(content))

    # Reading and writing. Factors are constants of a recorded step.

    def get_scale(self) -> float:
        """Return the scale. Waits."""
        return self._read()[0] if self._enabled else 1.0

    def _read(self) -> tuple[float, float, float]:
        scale, found_inf, tracker = struct.unpack("<3f", self._device.read(self._state))
        return scale, found_inf, tracker

    def get_growth_factor(self) -> float:
        """Return the factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale grows. ValueError if it is out of range."""
        self._growth_factor: float = _CHECKED["growth_factor"](new_factor)

    def get_backoff_factor(self) -> float:
        """Return the factor by which the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale shrinks. ValueError if it is out of range."""
        self._backoff_factor: float = _CHECKED["backoff_factor"](new_factor)

    def get_growth_interval(self) -> int:
        """Return the number of consecutive steps after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of consecutive steps after which the scale grows. ValueError if it is out of range."""
        self._growth_interval: int = _CHECKED["growth_interval"](new_interval)

    # The interface `recovery.Recoverable`.

    recovery_order: ClassVar[int] = 1

    def recovery_views(self) -> Mapping[str, View]:
        """Return the view of the scale, the flag of non-finite gradients, and the count of steps."""
        return {"scaler": self._state}

    def keeper(self) -> Callable[[Mapping[str, memoryview]], None]:
        """Return a function that stores the content of these views as the snapshot."""
        return lambda contents: setattr(self, "_snapshot", contents["scaler"])

    @property
    def has_snapshot(self) -> bool:
        """True if there is a snapshot."""
        return self._snapshot is not None

    def revive(self, device: Device) -> None:
        """Continue with the snapshot's scale on this device."""
        assert self._snapshot is not None
        self._allocate_on(device)
        device.write(self._state, self._snapshot)

    def state_dict(self) -> dict[str, Any]:
        """Return scale, factors and the count of steps, by torch's names; empty if not enabled. Waits."""
        if not self._enabled:
            return {}
        scale, _, tracker = self._read()
        return {
            "scale": scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": int(tracker),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state dict of ours or of torch's.

        Raises:
            RuntimeError: it is empty, as that of a scaler that was not enabled.
            CheckpointError: an entry is missing, no number, or out of range; nothing is loaded then.
            UnsupportedError: a step is being recorded.
        """
        if not self._enabled:
            return
        if self._device.recording is not None:
            raise UnsupportedError("load the state dict outside the compiled step")
        if not isinstance(state_dict, Mapping):
            raise CheckpointError(f"the state dict of a scaler must be a dict, not {state_dict!r}")
        if len(state_dict) == 0:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        values = {}
        for name, check in _CHECKED.items():
            try:
                values[name] = check(state_dict[name])
            except (KeyError, TypeError, ValueError) as error:
                raise CheckpointError(f"the state dict of a scaler has no usable '{name}': {error}") from error
        self._write(values["scale"], values["_growth_tracker"])
        self._growth_factor, self._backoff_factor = values["growth_factor"], values["backoff_factor"]
        self._growth_interval = values["growth_interval"]

    # Copies.

    def __getstate__(self) -> dict[str, Any]:
        """For `copy.deepcopy` and `pickle`. Waits."""
        left_out = {"_device", "_buffer", "_stages", "_recording", "_snapshot"}
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        return {**kept, "_state": (self._device.name, bytes(self._device.read(self._state)))} if self._enabled else kept

    def __setstate__(self, content: dict[str, Any]) -> None:
        content = dict(content)
        saved = content.pop("_state", None)
        vars(self).update(content)
        if saved is not None:
            self._snapshot = None
            self._allocate_on(device_of(saved[0]))
            self._device.write(self._state, memoryview(saved[1]))
            keep_track(self)
