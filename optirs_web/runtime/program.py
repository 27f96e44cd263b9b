"""Programs: a list of commands over fixed buffers, recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import OptirsError
from .backend import Command
from .buffer import Buffer, View
from .pool import Pool

if TYPE_CHECKING:
    from .device import Device

__all__ = ["NotReadyError", "Program", "StaleProgramError"]


class StaleProgramError(OptirsError, RuntimeError):
    """A buffer that the program bound has moved (its arena was rebuilt): record the program again."""


class NotReadyError(Exception):
    """Something has to be done outside the recording first: call `prepare`, and record again. Not shown to users."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        """`prepare` does it."""
        super().__init__("record again after prepare()")
        self.prepare = prepare


class Program:
    """What `Device.record` yields.

    Memory that is allocated while recording belongs to the program: freed memory is used again only
    by later commands of the same program, so that a replay finds everything where it was. Memory
    from outside is kept alive.

    Attributes:
        commands: dispatches and copies, in order.
        dispatches: how many of them are dispatches.
        recorded: the backend's one command for all of them, once the recording has ended.
        before_replay: called before each replay; optimizers bring their hyper-parameters up to date here.
        at_replay: called then, once it is certain that the replay follows; schedules move their counts here.
        pool: free memory of the program, while it is being recorded.
    """

    def __init__(self, device: Device) -> None:
        """Made by `Device.record`."""
        self.device = device
        self.commands: list[Command] = []
        self.dispatches = 0
        self.recorded: Command | None = None
        self.before_replay: list[Callable[[], None]] = []
        self.at_replay: list[Callable[[], None]] = []
        self.pool = Pool()
        self._owned: list[tuple[Any, int]] = []
        self._own_handles: set[Any] = set()
        self._bound: dict[int, Buffer] = {}

    # Called by the device while it records.

    def own(self, handle: Any, nbytes: int) -> None:
        """Take over memory that nobody else holds."""
        self._owned.append((handle, nbytes))
        self._own_handles.add(handle)

    def give_back(self, rounded: int) -> Callable[[Any, int], None]:
        """What a buffer of the program does when it is released."""

        def put(handle: Any, _: int) -> None:
            if self.device.recording is self:
                self.pool.put(handle, rounded)

        return put

    def add(self, command: Command, views: Sequence[View], *, is_dispatch: bool) -> None:
        """Append a command over these views."""
        self.commands.append(command)
        self.dispatches += is_dispatch
        for view in views:
            if view.buffer.handle not in self._own_handles:
                self._bound[id(view.buffer)] = view.buffer

    def keep(self, buffer: Buffer) -> None:
        """Keep a buffer alive as long as the program: a constant that was uploaded while recording."""
        self._bound[id(buffer)] = buffer

    @property
    def copies(self) -> int:
        """How many of the commands are copies."""
        return len(self.commands) - self.dispatches

    # Called at replay.

    def prepare(self) -> None:
        """Run the `before_replay` calls, check that every buffer is still in place, and run the `at_replay` calls."""
        for call in self.before_replay:
            call()
        if any(buffer.retired for buffer in self._bound.values()):
            raise StaleProgramError("a buffer that this program bound has moved; record it again")
        for call in self.at_replay:
            call()

    def release(self) -> None:
        """Give the program's memory back to the device's pool."""
        owned, self._owned = self._owned, []
        self.commands = []
        self.recorded = None
        self._bound = {}
        for handle, nbytes in owned:
            self.device.returned.append((self.device.reclaim, handle, nbytes))

    def __del__(self) -> None:
        self.release()
