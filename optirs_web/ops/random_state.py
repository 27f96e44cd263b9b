"""The state of the random numbers: a seed and a count of draws on the host, and for each device a count of replays.

Numbers are made by counter (see shaders/elementwise/random.wgsl): each draw is a stream of its own. Outside compiled
steps the host counts the streams. A compiled step numbers its draws when it is recorded; with each replay the device
adds 1 to a count of its own, which the draws read: so each replay has new numbers, without work of the host, and an
operation that draws the same stream later in that replay, as a backward pass does, gets the same numbers.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from weakref import ReferenceType, WeakKeyDictionary, ref

from ..errors import quoted
from ..launch import Operand, apply_in_place
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.dtypes import UINT32
from ..runtime.locks import ForkSafeLock
from ..runtime.modes import Block, Mode
from ..runtime.program import Program
from ..tensor_class import Tensor

__all__ = [
    "Draw",
    "checked_seed",
    "drawn_again",
    "draws_so_far",
    "get_rng_state",
    "manual_seed",
    "next_draw",
    "set_rng_state",
]

_WORD = 0xFFFFFFFF


class Draw(NamedTuple):
    """The key and counter of a draw, as operands of a map function: uint32, on the host or on the device."""

    seed_low: Operand
    seed_high: Operand
    stream: int
    replay: Operand
    first: int = 0


class _DeviceState:
    """The seed and the count of replays that have drawn, in buffers of a device."""

    def __init__(self, device: Device) -> None:
        self._seed, self._replay = (
            Tensor(View.whole(device.allocate_zeroed(4 * size)), (size,), UINT32) for size in (2, 1)
        )
        self._program: ReferenceType[Program] | None = None
        self.draws = 0  # of the program that was recorded last
        self.refresh()

    def refresh(self) -> None:
        """Write the seed and the count of the host to the device."""
        device = self._seed.device
        replays = _replays.get(device.name, 0)
        device.write(self._seed.view, memoryview(struct.pack("<2I", _seed & _WORD, _seed >> 32)))
        device.write(self._replay.view, memoryview(struct.pack("<I", replays & _WORD)))

    def follow(self, recording: Program) -> None:
        """Count the draws of the program that is being recorded, whose replays begin with a new count of their own."""
        if self._program is None or self._program() is not recording:
            self._program, self.draws = ref(recording), 0
            apply_in_place("random", "next_replay", self._replay)
            recording.at_replay.append(partial(_count, self._seed.device.name))

    def next_draw(self) -> Draw:
        """Return the next draw of the program that is being recorded."""
        self.draws += 1
        low, high = (_word(self._seed, number) for number in (0, 1))
        return Draw(low, high, self.draws - 1, _word(self._replay, 0))


def _count(name: str) -> None:
    _replays[name] = _replays.get(name, 0) + 1


def _word(words: Tensor, number: int) -> Tensor:
    return Tensor(words.strided.view, (), words.dtype, strides=(), start=number)


_seed = 0
_stream = 0
_lock = ForkSafeLock()  # held while these change
_again: Mode[list[int] | None] = Mode("drawn_again", None)
_device_states: WeakKeyDictionary[Device, _DeviceState] = WeakKeyDictionary()
_replays: dict[str, int] = {}  # that have drawn, by the name of their device


def manual_seed(seed: int) -> None:
    """Restart the random numbers of all operations, on all devices. Seeds are integers from 0 to 2**64 - 1.

    Example:
        >>> import optirs_web as ow
        >>> ow.manual_seed(1); a = ow.randn((2,), device="cpu").tolist()
        >>> ow.manual_seed(1); a == ow.randn((2,), device="cpu").tolist()
        True
    """
    set_rng_state({"seed": checked_seed(seed), "stream": 0, "replays": {}})


def checked_seed(seed: Any, bits: int = 64) -> int:
    """Return the seed as an int.

    Raises:
        TypeError: it is not an integer; True and False are not taken for one.
        ValueError: it is below 0 or not below 2**bits.
    """
    message = f"a seed must be an integer from 0 to 2**{bits} - 1, not {quoted(seed)}"
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise TypeError(message)
    number = operator.index(seed)
    if not 0 <= number < 1 << bits:
        raise ValueError(message)
    return number


def get_rng_state() -> dict[str, Any]:
    """The state of the random numbers: the seed, the draws so far, and for each device how many replays have drawn.

    Nothing is read from a device.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web.ops import get_rng_state, set_rng_state
        >>> state = get_rng_state()
        >>> a = ow.rand((2,), device="cpu").tolist()
        >>> set_rng_state(state); a == ow.rand((2,), device="cpu").tolist()
        True
    """
    return {"seed": _seed, "stream": _stream, "replays": dict(_replays)}


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore the state that `get_rng_state` returned, in this process or another.

    Raises:
        ValueError: it is no such state.

    Example:
        >>> import optirs_web as ow
        >>> state = ow.ops.get_rng_state()
        >>> numbers = ow.rand((3,), device="cpu").tolist()
        >>> ow.ops.set_rng_state(state)
        >>> ow.rand((3,), device="cpu").tolist() == numbers
        True
    """
    global _seed, _stream, _replays
    try:
        seed, stream = checked_seed(state["seed"]), operator.index(state["stream"])
        replays = {str(name): operator.index(count) for name, count in state["replays"].items()}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"a random state must be from get_rng_state, not {quoted(state)}"
        raise ValueError(message) from error
    with _lock:
        _seed, _stream, _replays = seed, stream, replays
    for device, device_state in list(_device_states.items()):
        if not device.lost:
            device_state.refresh()


def next_draw(device: Device, seed: int | None = None) -> Draw:
    """Return a new draw of the sequence; with a seed, the first draw of the sequence that begins with it.

    Raises:
        ValueError: the seed is out of range.
    """
    global _stream
    if seed is not None:
        key = checked_seed(seed)
        return Draw(key & _WORD, key >> 32, 0, 0)
    if device.recording is None:
        again = _again.get()
        with _lock:
            key = _seed
            if again is None:
                position, _stream = _stream, _stream + 1
            else:
                position, again[0] = again[0], again[0] + 1
        return Draw(key & _WORD, key >> 32, position & _WORD, 0)
    return _device_state(device, device.recording).next_draw()


def _device_state(device: Device, recording: Program) -> _DeviceState:
    if device not in _device_states:
        _device_states[device] = _DeviceState(device)
    state = _device_states[device]
    state.follow(recording)
    return state


def draws_so_far(device: Device) -> int:
    """Return the number of draws so far: in the step that the device records now, else outside of compiled steps."""
    if device.recording is not None:
        return _device_state(device, device.recording).draws
    again = _again.get()
    return _stream if again is None else again[0]


@contextmanager
def drawn_again(device: Device, position: int) -> Iterator[None]:
    """Repeat in the block the draws from `position` (see `draws_so_far`) on; afterwards continue from the latest draw.

    For operations that are computed a second time. Both have to happen in the same step.
    """
    if device.recording is None:
        with Block(_again, [position]):
            yield
        return
    drawing = _device_state(device, device.recording)
    before, drawing.draws = drawing.draws, position
    try:
        yield
    finally:
        drawing.draws = before
