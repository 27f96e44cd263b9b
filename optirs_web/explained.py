"""`explain`: a report of a compiled step: fused kernels, dispatches, bytes moved, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .compiled import Compiled, CompiledMethod
from .errors import UnsupportedError
from .runtime.launches import Launch, Recorded
from .runtime.pool import size_class
from .runtime.program import Program, ProgramBuffer

__all__ = ["Explanation", "Figures", "explain"]


@dataclass(frozen=True, slots=True)
class Figures:
    """The costs of a list of launches.

    Attributes:
        dispatches: number of kernel launches.
        copies: number of copies.
        bytes: bytes that kernels and copies bind, read or written: the bytes moved, where each element is used.
        memory: the most bytes of intermediate results at once.
    """

    dispatches: int
    copies: int
    bytes: int
    memory: int


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """A report of a compiled step; its text is a table.

    Attributes:
        device: where it was recorded.
        called: the costs of the operations that the step called one by one, with memory as Python holds it.
        replayed: the costs of a replay.
        kernels: the names of the launches of a replay, in order; those of fused kernels have a "+" between their parts.
        recomputed: number of these that run a second time, as there was no room for all results when it was recorded.
    """

    device: str
    called: Figures
    replayed: Figures
    kernels: tuple[str, ...]
    recomputed: int = 0

    def __repr__(self) -> str:
        return f"<Explanation: {self.called.dispatches} dispatches became {self.replayed.dispatches}>"

    def __str__(self) -> str:
        rows = [
            (name, getattr(self.called, name), getattr(self.replayed, name))
            for name in ("dispatches", "copies", "bytes", "memory")
        ]
        text_lines = [f"{f'on {self.device}':12}{'as called':>16}{'replayed':>16}"]
        text_lines += [f"{name:12}{called:16,}{replayed:16,}" for name, called, replayed in rows]
        counts = Counter(self.kernels)
        text_lines += ["", "a replay runs"]
        text_lines += [f"{count:4} × {name}" for name, count in counts.items()]
        if self.recomputed:
            text_lines += ["", f"{self.recomputed} of these run twice to save memory"]
        return "\n".join(text_lines)


def explain(step: Compiled | CompiledMethod) -> Explanation:
    """Return a report of a compiled step's last recording: fused kernels, dispatches, bytes, memory.

    Print it for a table.

    Raises:
        TypeError: it is no compiled step.
        UnsupportedError: the step has not been called yet, so nothing is recorded.

    Example:
        >>> import optirs_web as ow
        >>> step = ow.compile(lambda x: ((x + 1.0) * x).relu())
        >>> step(ow.ones((4,), device="cpu")).tolist()
        [2.0, 2.0, 2.0, 2.0]
        >>> explanation = ow.explain(step)
        >>> print(explanation)
        on cpu             as called        replayed
        dispatches                 3               1
        copies                     0               0
        bytes                    112              32
        memory                   512             256
        <BLANKLINE>
        a replay runs
           1 × add+multiply+relu
        >>> explanation.replayed.dispatches
        1
    """
    step = step.__func__ if isinstance(step, CompiledMethod) else step
    if not isinstance(step, Compiled):
        raise TypeError(f"explain takes what optirs_web.compile returns, not {type(step).__name__}")
    program = step.program
    if program is None:
        raise UnsupportedError("the step has not been recorded: call it once, then explain it")
    return _explanation(program)


def _explanation(program: Program) -> Explanation:
    called = _figures(program.as_recorded, _held_memory(program.as_recorded))
    replayed = _figures(program.launches, program.nbytes)
    names = tuple(launch.kernel.name if isinstance(launch, Launch) else "copy" for launch in program.launches)
    return Explanation(program.device.name, called, replayed, names, program.recomputed)


def _figures(launches: Sequence[Recorded], memory: int) -> Figures:
    dispatches = sum(isinstance(launch, Launch) for launch in launches)
    moved = sum(view.nbytes for launch in launches for view in (*launch.reads, *launch.writes))
    return Figures(dispatches, len(launches) - dispatches, moved, memory)


def _held_memory(launches: Sequence[Recorded]) -> int:
    """Return the most bytes that Python references at once, in the pool's size classes."""
    buffers = {view.buffer for launch in launches for view in (*launch.reads, *launch.writes)}
    changes: Counter[int] = Counter()
    for buffer in buffers:
        if isinstance(buffer, ProgramBuffer):
            changes[buffer.made_at] += size_class(buffer.nbytes)
            changes[buffer.dropped_at if buffer.dropped_at is not None else len(launches)] -= size_class(buffer.nbytes)
    held_bytes = most = 0
    for time in sorted(changes):
        held_bytes += changes[time]
        most = max(most, held_bytes)
    return most
