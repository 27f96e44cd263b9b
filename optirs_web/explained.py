"""`explain`: what a compiled step became: what was fused, how often kernels run, the bytes they move, the memory."""

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
    """What a list of launches costs.

    Attributes:
        dispatches: kernels run.
        copies: copies made.
        bytes: that kernels and copies are bound to, read or written: what they move, where each element is used.
        memory: bytes of memory for what is in between, at most.
    """

    dispatches: int
    copies: int
    bytes: int
    memory: int


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What a compiled step became; its text is a table.

    Attributes:
        device: where it was recorded.
        called: what the operations that the step called cost by themselves, with memory as Python holds it.
        replayed: what a replay costs.
        kernels: the names of what a replay runs, in order; fused ones have a "+" between those of their parts.
        recomputed: how many of these run a second time, since there was no room for all results when it was recorded.
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
        lines = [f"{f'on {self.device}':12}{'as called':>16}{'replayed':>16}"]
        lines += [f"{name:12}{called:16,}{replayed:16,}" for name, called, replayed in rows]
        counts = Counter(self.kernels)
        lines += ["", "a replay runs"]
        lines += [f"{count:4} × {name}" for name, count in counts.items()]
        if self.recomputed:
            lines += ["", f"{self.recomputed} of these run twice to save memory"]
        return "\n".join(lines)


def explain(step: Compiled | CompiledMethod) -> Explanation:
    """Return what a compiled step became, as it was recorded last: fused kernels, dispatches, bytes, memory.

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
    names = tuple(one.kernel.name if isinstance(one, Launch) else "copy" for one in program.launches)
    return Explanation(program.device.name, called, replayed, names, program.recomputed)


def _figures(launches: Sequence[Recorded], memory: int) -> Figures:
    dispatches = sum(isinstance(one, Launch) for one in launches)
    moved = sum(view.nbytes for one in launches for view in (*one.reads, *one.writes))
    return Figures(dispatches, len(launches) - dispatches, moved, memory)


def _held_memory(launches: Sequence[Recorded]) -> int:
    """The most that Python holds at once, as the pool would give it."""
    buffers = {view.buffer for one in launches for view in (*one.reads, *one.writes)}
    changes: Counter[int] = Counter()
    for buffer in buffers:
        if isinstance(buffer, ProgramBuffer):
            changes[buffer.made_at] += size_class(buffer.nbytes)
            changes[buffer.dropped_at if buffer.dropped_at is not None else len(launches)] -= size_class(buffer.nbytes)
    held = most = 0
    for at in sorted(changes):
        held += changes[at]
        most = max(most, held)
    return most
