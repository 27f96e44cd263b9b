"""Programs: a list of launches and copies over fixed buffers, recorded once and replayed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import OptirsError, OutOfDeviceMemoryError, UnsupportedError
from .backend import Command
from .buffer import Buffer, View
from .fusion import fuse, stays
from .launches import Copy, Launch, Recorded
from .modes import Block, Mode
from .planning import Plan, plan
from .uses import relocated

if TYPE_CHECKING:
    from .device import Device

__all__ = ["NotReadyError", "Program", "ProgramBuffer", "StaleProgramError", "recorded_here"]


class StaleProgramError(OptirsError, RuntimeError):
    """A buffer that the program bound has moved (its arena was rebuilt): record the program again."""


class NotReadyError(Exception):
    """Something has to be done outside the recording first: call `prepare`, and record again. Not shown to users."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        """`prepare` does it."""
        super().__init__("record again after prepare()")
        self.prepare = prepare


class ProgramBuffer(Buffer):
    """A buffer of a program: what its launches name, a piece of memory once it is known which buffers share it.

    Tensors hold another buffer. When that has been freed, only the program reads this one.

    Attributes:
        held_by: the buffer that tensors hold.
        made_at: the number of launches and copies that were recorded before it.
        dropped_at: the number that were recorded before the tensors' buffer was freed, if that was while recording.
    """

    __slots__ = ("dropped_at", "held_by", "made_at")

    def __init__(self, device: Device, nbytes: int, made_at: int) -> None:
        """Make a buffer without memory."""
        super().__init__(device, None, nbytes, lambda *_: None)
        self._give_back = None
        self.held_by: weakref.ref[Buffer] | None = None
        self.made_at = made_at
        self.dropped_at: int | None = None

    @property
    def is_temporary(self) -> bool:
        """No tensor holds it."""
        return self.held_by is None or self.held_by() is None


_recording: Mode[Program | None] = Mode("recording", None)


def recorded_here() -> Program | None:
    """Return the program that this thread or task records now; None if it records none."""
    program = _recording.setting().value
    return program if program is not None and program.is_open else None


class Program:
    """A sequence of launches and copies that `Device.record` records, to be replayed as a whole.

    What is recorded is kept as launches. When the recording ends they are fused, the buffers that were allocated in it
    are given memory of the program's own, which those share that are not needed at the same time, and everything is
    bound. Memory from outside is kept alive.

    Attributes:
        as_recorded: launches and copies as they were called, in order.
        launches: those that are replayed.
        is_open: it is being recorded.
        elsewhere: another device, which has a tensor that the recorded step uses; that is an error.
        dispatches: the number of kernels that a replay runs.
        recomputed: the number of launches that run a second time, since the device had no memory to keep all results.
        copies: the number of copies that a replay makes.
        runs: it is to be replayed.
        recorded: the backend's one command for all of them, once the recording has ended.
        before_replay: called before each replay; optimizers bring their hyper-parameters up to date here.
        at_replay: called then, once it is certain that the replay follows; schedules move their counts here.
    """

    def __init__(self, device: Device, *, fuses: bool, runs: bool = True) -> None:
        """Made by `Device.record`."""
        self.device = device
        self.runs = runs
        self.as_recorded: list[Recorded] = []
        self.launches: list[Recorded] = []
        self.dispatches = 0
        self.copies = self.recomputed = 0
        self.recorded: Command | None = None
        self.is_open = False
        self.elsewhere: Device | None = None
        self.before_replay: list[Callable[[], None]] = []
        self.at_replay: list[Callable[[], None]] = []
        self._fuses = fuses
        self._made: list[ProgramBuffer] = []
        self._owned: list[tuple[Any, int]] = []
        self._bound: dict[int, Buffer] = {}

    # Called by the device while it records.

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what this thread or task enqueues on the device in the block."""
        self.is_open = True
        try:
            with Block(_recording, self):
                yield
        finally:
            self.is_open = False  # also for tasks that were made in the block

    def allocate(self, nbytes: int) -> Buffer:
        """Return a buffer of the program, which has memory when the recording has ended."""
        own = self.make(nbytes)
        buffer = Buffer(self.device, own, nbytes, self._drop)
        own.held_by = weakref.ref(buffer)
        self._made.append(own)
        return buffer

    def _drop(self, handle: Any, nbytes: int) -> None:
        """Note on a released buffer of the program how many launches and copies were recorded by then.

        As long as the buffer is not released, the program stays alive.
        """
        if isinstance(handle, ProgramBuffer):
            handle.dropped_at = len(self.as_recorded)

    def add(self, command: Recorded) -> None:
        """Append a launch or a copy."""
        if isinstance(command, Launch):
            views = tuple(self._own(view) for view in command.views)
            command = Launch(command.kernel, views, command.grid, command.parameters)
            if self.device.backend.tuned is None and (stays(command) or not self._fuses):
                self.device.backend.expect(command.kernel)
        else:
            command = Copy(self._own(command.source), self._own(command.target))
        self.as_recorded.append(command)

    def _own(self, view: View) -> View:
        handle = view.buffer.handle
        if isinstance(handle, ProgramBuffer):
            return View(handle, view.offset, view.nbytes)
        self._bound[id(view.buffer)] = view.buffer
        return view

    def keep(self, buffer: Buffer) -> None:
        """Keep a buffer alive as long as the program: a constant that was uploaded while recording."""
        self._bound[id(buffer)] = buffer

    # Called by the device when the recording has ended.

    def finish(self, allocate: Callable[[int], tuple[Any, int]]) -> None:
        """Fuse the launches and give their buffers memory.

        Args:
            allocate: returns a handle of at least that many bytes of memory, and their number.
        """
        self.launches = self.as_recorded
        if self._fuses:
            self.launches = fuse(self.launches, _is_temporary, self.device.capabilities, self.make)
        try:
            planned = self._allocate_plan(allocate)
        except OutOfDeviceMemoryError:
            self._compute_again()
            planned = self._allocate_plan(allocate)
        pieces = [self._piece(handle, nbytes) for handle, nbytes in self._owned]
        locations = {
            buffer: View(pieces[at.piece], at.offset, buffer.nbytes) for buffer, at in planned.locations.items()
        }
        self.launches = [relocated(launch, locations) for launch in self.launches]
        for own in self._made:
            held = own.held_by() if own.held_by is not None else None
            if held is None:
                continue
            if own in locations:
                held.handle = locations[own].buffer.handle
            else:  # no launch touches it
                self._owned.append(allocate(own.nbytes))
                held.handle = self._owned[-1][0]
        self._made = []
        self.dispatches = sum(isinstance(launch, Launch) for launch in self.launches)
        self.copies = len(self.launches) - self.dispatches

    def _allocate_plan(self, allocate: Callable[[int], tuple[Any, int]]) -> Plan:
        """Allocate the memory that the launches need, and return the plan of who uses it."""
        planned = plan(self.launches, _is_own, _is_temporary, self.device.capabilities)
        for nbytes in planned.sizes:
            self._owned.append(allocate(nbytes))
        return planned

    def _compute_again(self) -> None:
        """Change the launches so that they need less memory.

        Raises:
            OutOfDeviceMemoryError: there is too little for that too.
        """
        from .recompute import shrink  # which few steps need

        got = self.nbytes
        self._give_back()
        shrink(self, got, _is_own, _is_temporary)

    def _piece(self, handle: Any, nbytes: int) -> ProgramBuffer:
        """Return the buffer that the launches name for a piece of memory."""
        piece = self.make(nbytes)
        piece.handle = handle
        return piece

    def make(self, nbytes: int) -> ProgramBuffer:
        """Return a buffer that no tensor holds."""
        return ProgramBuffer(self.device, nbytes, len(self.as_recorded))

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the program owns."""
        return sum(nbytes for _, nbytes in self._owned)

    # Called at replay.

    def prepare(self) -> None:
        """Run the `before_replay` calls, check that every buffer is still in place, and run the `at_replay` calls."""
        for call in self.before_replay:
            call()
        for buffer in self._bound.values():
            if buffer.retired:
                raise StaleProgramError("a buffer that this program bound has moved; record it again")
        for call in self.at_replay:
            call()

    def release(self) -> None:
        """Give the program's memory back to the device's pool."""
        self.as_recorded, self.launches, self._made = [], [], []
        self.recorded = None
        self._bound = {}
        self._give_back()

    def _give_back(self) -> None:
        owned, self._owned = self._owned, []
        for handle, nbytes in owned:
            self.device.returned.append((self.device.reclaim, handle, nbytes))

    def __del__(self) -> None:
        self.release()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise UnsupportedError("a recorded program cannot be copied or pickled: record it again")


def _is_own(buffer: Buffer) -> bool:
    return isinstance(buffer, ProgramBuffer)


def _is_temporary(buffer: Buffer) -> bool:
    return isinstance(buffer, ProgramBuffer) and buffer.is_temporary
