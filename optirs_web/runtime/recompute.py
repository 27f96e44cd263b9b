"""Fits a step into less memory: buffers that are idle at the peak are dropped, and computed again before they are used.

That is gradient checkpointing (Chen et al. 2016, "Training deep nets with sublinear memory cost"), decided launch by
launch when a program is given its memory: the same kernels run over the same values, so results stay as they are, bit
for bit, and what is paid is time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..errors import OutOfDeviceMemoryError
from .buffer import Buffer, View
from .exhaustion import largest_holders
from .launches import Copy, Recorded, overlaps
from .planning import plan
from .pool import size_class
from .uses import renamed

if TYPE_CHECKING:
    from .program import Program

__all__ = ["shrink"]

_DEPTH = 8
"""The longest chain of launches, each needing the result of the next, that is run again for a result."""

_TRIES = 400
"""At least; as many as there are launches where these are more."""

Owned = Callable[[Buffer], bool]
Make = Callable[[int], Buffer]


class _Use(NamedTuple):
    """The uses of a buffer of the program: indices of the launches that touch it, and of those that write it."""

    touched: list[int]
    written: list[int]

    @property
    def is_stable(self) -> bool:
        """One launch makes it, and it stays as it is."""
        return len(self.written) == 1 and self.written[0] == self.touched[0]


class _Step:
    """Launches and the times at which their buffers are alive."""

    def __init__(self, launches: Sequence[Recorded], is_own: Owned, is_temporary: Owned) -> None:
        self.launches = launches
        self.uses: dict[Buffer, _Use] = {}
        for at, launch in enumerate(launches):
            for views, is_write in ((_inputs(launch), False), (launch.writes, True)):
                for view in views:
                    if is_own(view.buffer):
                        use = self.uses.setdefault(view.buffer, _Use([], []))
                        if not use.touched or use.touched[-1] != at:
                            use.touched.append(at)
                        if is_write:
                            use.written.append(at)
        self.last = {
            buffer: use.touched[-1] if is_temporary(buffer) else len(launches) for buffer, use in self.uses.items()
        }
        self.live = [0] * len(launches)
        for buffer, use in self.uses.items():
            for at in range(use.touched[0], min(self.last[buffer] + 1, len(launches))):
                self.live[at] += buffer.nbytes

    def excess(self, room: int) -> int:
        """Return the bytes alive beyond `room`, summed over all launches."""
        return sum(max(0, nbytes - room) for nbytes in self.live)

    def idle(self, at: int) -> list[tuple[Buffer, int]]:
        """Return the buffers that are idle at a launch, the largest first, each with the launch that needs it next."""
        buffers = []
        for buffer, use in self.uses.items():
            if use.is_stable and use.touched[0] < at < use.touched[-1] and at not in use.touched:
                buffers.append((buffer, next(later for later in use.touched if later > at)))
        return sorted(buffers, key=lambda entry: entry[0].nbytes, reverse=True)


def _inputs(launch: Recorded) -> list[View]:
    if isinstance(launch, Copy):
        return [launch.source]
    return [view for binding, view in zip(launch.kernel.bindings, launch.views, strict=True) if not binding.writes]


def shrink(program: Program, got: int, is_own: Owned, is_temporary: Owned) -> None:
    """Reduce the memory that a program needs, by running some of its launches again.

    Args:
        program: it holds no memory.
        got: the bytes that were allocated for it before there were no more.
        is_own: whether a buffer is the program's.
        is_temporary: whether nobody reads it afterwards.

    Raises:
        OutOfDeviceMemoryError: it does not fit.
    """
    held = program.device.memory_stats()
    room = got if held.limit is None else held.limit - held.live_bytes

    def needed(launches: Sequence[Recorded]) -> int:
        return sum(map(size_class, plan(launches, is_own, is_temporary, program.device.capabilities).sizes))

    def has_room(launches: Sequence[Recorded]) -> bool:
        return needed(launches) <= room

    wanted = needed(program.launches)
    fitting = _Fitting(program.launches, is_own, is_temporary, program.make)
    fitting.fit(has_room, room)
    launches = [*fitting.step.launches]
    least = needed(launches)
    if least > room:
        raise OutOfDeviceMemoryError(
            least,
            held.live_bytes,
            held.limit,
            program.device.name,
            note=f"The compiled step needs {wanted:,} bytes, {least:,} with recomputation, "
            f"and there is room for {max(room, 0):,}. {largest_holders(program.device)}",
        ) from None
    program.recomputed = len(launches) - len(program.launches)
    program.launches = launches


class _Fitting:
    """The launches of a program, of which some are run again until they fit.

    Attributes:
        step: the launches so far.
    """

    def __init__(self, launches: Sequence[Recorded], is_own: Owned, is_temporary: Owned, make: Make) -> None:
        self.step = _Step(launches, is_own, is_temporary)
        self._is_own, self._is_temporary, self._make = is_own, is_temporary, make
        uses = self.step.uses
        self._producers = {buffer: launches[use.written[0]] for buffer, use in uses.items() if use.is_stable}
        self._roots = {buffer: buffer for buffer in self._producers}
        self._refused: set[tuple[Buffer, int]] = set()

    def fit(self, has_room: Callable[[Sequence[Recorded]], bool], room: int) -> None:
        """Make the step fit if that is possible, and need less memory if not.

        Args:
            has_room: whether launches fit.
            room: the bytes that may be alive at once.
        """
        share = 1.0
        for _ in range(max(_TRIES, len(self.step.launches))):
            if has_room(self.step.launches):
                return
            target = int(room * share)
            if self.step.excess(target) == 0:  # the pieces do not fit into each other: aim lower
                share *= 0.9
                self._refused.clear()
            elif not self._drop_a_buffer(target):
                return

    def _drop_a_buffer(self, target: int) -> bool:
        """Drop an idle buffer where the most bytes are alive; return False if none helps."""
        step, roots = self.step, self._roots
        peak = max(range(len(step.live)), key=step.live.__getitem__)
        for buffer, needed in step.idle(peak):
            key = roots.get(buffer, buffer), step.uses[buffer].touched[0]
            if key in self._refused or buffer not in roots:
                continue
            again = _Again(step, needed, self._make, self._producers, roots)
            made = again.make_again(roots[buffer], _DEPTH)
            if made is not None:
                tail = [renamed(launch, {buffer: made}) for launch in step.launches[needed:]]
                changed = _Step([*step.launches[:needed], *again.launches, *tail], self._is_own, self._is_temporary)
                if changed.excess(target) < step.excess(target):
                    roots.update(again.made)
                    self.step = changed
                    return True
            self._refused.add(key)
        return False


class _Again:
    """The launches to run again before launch `at`, so that buffers have the content that it needs."""

    def __init__(
        self,
        step: _Step,
        at: int,
        make: Make,
        producers: dict[Buffer, Recorded],
        roots: dict[Buffer, Buffer],
    ) -> None:
        self.launches: list[Recorded] = []
        self.made: dict[Buffer, Buffer] = {}
        self._step, self._at, self._make = step, at, make
        self._producers, self._roots = producers, roots
        self._alive = {
            roots[buffer]: buffer
            for buffer, use in step.uses.items()
            if buffer in roots and use.touched[0] < at <= step.last[buffer]
        }

    def make_again(self, root: Buffer, depth: int) -> Buffer | None:
        """Return the buffer that has the content of `root` after these launches; None if that is impossible."""
        producer = self._producers[root]
        names: dict[Buffer, Buffer] = {}
        for view in _inputs(producer):
            source = self._input(view, root, depth - 1)
            if source is None:
                return None
            names[view.buffer] = source
        for view in producer.writes:
            if view.buffer not in self._producers:
                return None
            names[view.buffer] = self._make(view.buffer.nbytes)
            self.made[names[view.buffer]] = view.buffer
        self.launches.append(renamed(producer, names))
        return names[root]

    def _input(self, view: View, result: Buffer, depth: int) -> Buffer | None:
        buffer = view.buffer
        if buffer not in self._step.uses:
            return buffer if self._is_unchanged(view, result) else None
        root = self._roots.get(buffer)
        if root is None:
            return None
        again = next((copy for copy, original in self.made.items() if original is root), None)
        if again is not None or root in self._alive:
            return again or self._alive[root]
        return self.make_again(root, depth) if depth > 0 else None

    def _is_unchanged(self, view: View, result: Buffer) -> bool:
        """Return whether memory from outside still has the content that it had when the result was computed."""
        first = self._step.uses[result].written[0]
        return not any(overlaps(view, launch.writes) for launch in self._step.launches[first : self._at])
