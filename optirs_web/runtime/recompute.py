"""A step that does not fit: what lies idle at the peak is let go, and computed again where it is needed next.

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
"""Launches, one needing the result of the other, that are run again for one result at most."""

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
    """Launches, and when which buffer is alive."""

    def __init__(self, launches: Sequence[Recorded], is_own: Owned, is_temporary: Owned) -> None:
        self.launches = launches
        self.uses: dict[Buffer, _Use] = {}
        for at, one in enumerate(launches):
            for views, is_write in ((_inputs(one), False), (one.writes, True)):
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
        """By how much it is too large, over all launches."""
        return sum(max(0, one - room) for one in self.live)

    def idle(self, at: int) -> list[tuple[Buffer, int]]:
        """The buffers that lie idle at a launch, the largest first, each with the launch that needs it next."""
        found = []
        for buffer, use in self.uses.items():
            if use.is_stable and use.touched[0] < at < use.touched[-1] and at not in use.touched:
                found.append((buffer, next(one for one in use.touched if one > at)))
        return sorted(found, key=lambda one: one[0].nbytes, reverse=True)


def _inputs(one: Recorded) -> list[View]:
    if isinstance(one, Copy):
        return [one.source]
    return [view for binding, view in zip(one.kernel.bindings, one.views, strict=True) if not binding.writes]


def shrink(program: Program, got: int, is_own: Owned, is_temporary: Owned) -> None:
    """Have a program that found no memory need less, by running some of its launches again.

    Args:
        program: it holds no memory.
        got: the bytes that it was given before there were no more.
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
        """Have the step fit if that can be done, and need less if not.

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
            elif not self._let_one_go(target):
                return

    def _let_one_go(self, target: int) -> bool:
        """Have one idle buffer less where the most is alive; False where there is none that helps."""
        step, roots = self.step, self._roots
        peak = max(range(len(step.live)), key=step.live.__getitem__)
        for buffer, needed in step.idle(peak):
            key = roots.get(buffer, buffer), step.uses[buffer].touched[0]
            if key in self._refused or buffer not in roots:
                continue
            again = _Again(step, needed, self._make, self._producers, roots)
            made = again.make_again(roots[buffer], _DEPTH)
            if made is not None:
                tail = [renamed(one, {buffer: made}) for one in step.launches[needed:]]
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
        """The buffer that has the content of `root` after these launches; None where it cannot be had."""
        producer = self._producers[root]
        names: dict[Buffer, Buffer] = {}
        for view in _inputs(producer):
            found = self._input(view, root, depth - 1)
            if found is None:
                return None
            names[view.buffer] = found
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
        again = next((one for one, its_root in self.made.items() if its_root is root), None)
        if again is not None or root in self._alive:
            return again or self._alive[root]
        return self.make_again(root, depth) if depth > 0 else None

    def _is_unchanged(self, view: View, result: Buffer) -> bool:
        """Memory from outside holds what it held when the result was made."""
        first = self._step.uses[result].written[0]
        return not any(overlaps(view, one.writes) for one in self._step.launches[first : self._at])
