"""Errors for work that fails on a device after it was enqueued, and the choice of the commands that still run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import LaunchError

if TYPE_CHECKING:
    from .backend import AdapterInfo, Backend, BoundBuffer, Command, Handle
    from .kernels import Kernel
    from .timing import Work

__all__ = ["blame", "consequence", "independent", "launch_error", "lost_message", "needs_and_writes"]

Touched = tuple[Sequence["Handle"], Sequence["Handle"]]
"""The memory that a command needs the content of, and the memory that it writes."""


def needs_and_writes(kernel: Kernel, buffers: Sequence[BoundBuffer]) -> Touched:
    """Return the memory whose content a kernel over these buffers needs, and the memory that it writes.

    A buffer that it can write counts as needed too, unless `kernel.overwrites` says otherwise.
    """
    pairs = [(binding.writes, handle) for binding, (handle, _, _) in zip(kernel.bindings, buffers, strict=True)]
    return (
        [handle for writes, handle in pairs if not (writes and kernel.overwrites)],
        [handle for writes, handle in pairs if writes],
    )


def independent(
    commands: Iterable[Command], spoiled: set[Handle], touched: Callable[[Command], Touched]
) -> Iterator[Command]:
    """The commands that need nothing of what is spoiled; what the others would have written is spoiled too.

    Args:
        commands: one by one, in order.
        spoiled: memory without the content that it should have. It may grow meanwhile.
        touched: what a command needs and writes.
    """
    for command in commands:
        needs, writes = touched(command)
        if spoiled.isdisjoint(needs):
            yield command
        else:
            spoiled.update(writes)


def lost_message(info: AdapterInfo) -> str:
    """Return the message for a device that the driver reports as lost, with how to recover."""
    return (
        f"device '{info.name}' was lost with everything on it: {info.description}. "
        "optirs_web.recover() reopens it and continues from the last snapshot; without one, open it with "
        "optirs_web.device() and load a checkpoint"
    )


def consequence(left_out: int) -> str:
    """Return how many operations did not run, as the sentence that `launch_error` takes; "" for none."""
    return f"{left_out} operations that need its result did not run" if left_out else ""


def launch_error(
    backend: Backend, commands: Sequence[Command], failed: Command, why: object, entails: str
) -> LaunchError:
    """Return the error for a failed command, which names the operation, the step of a recorded program, and the cause.

    Args:
        backend: whose commands they are.
        commands: those that were submitted together.
        failed: one of them, or a part of one.
        why: in the device's words.
        entails: what did not run, as a sentence without its point; or "".
    """
    for command in commands:
        parts = backend.parts(command)
        for number, (part, work) in enumerate(parts, start=1):
            if part is failed:
                step = (number, len(parts)) if part is not command else None
                return _error(backend, _name(work), step, why, entails)
    return _error(backend, None, None, why, entails)


def blame(
    backend: Backend,
    batches: Iterable[Sequence[Command]],
    why: str,
    buffers_of: Callable[[Command], tuple[Kernel, Sequence[BoundBuffer]] | None],
    is_there: Callable[[Handle], bool],
) -> LaunchError:
    """Return the error for a failure that the device reported later, without the operation that caused it.

    It was the first operation that is given memory that was freed, or the same memory for reading and for writing;
    else one whose name the message has.

    Args:
        backend: whose commands they are.
        batches: what was submitted since the device was known to be well.
        why: its message.
        buffers_of: the kernel that a command runs, and its buffers.
        is_there: memory was not freed.
    """
    named = set(re.findall(r'"([^"]+)"', why))
    suspect: tuple[Sequence[Command], Command] = (), None
    for commands in batches:
        for command in commands:
            for part, work in backend.parts(command):
                bound = buffers_of(part)
                if bound is not None and _is_wrong(*bound, is_there):
                    return launch_error(backend, commands, part, why, _ALL)
                if suspect[1] is None and work is not None and _name(work) in named:
                    suspect = commands, part
    return launch_error(backend, *suspect, why, _ALL)


_ALL = "Work submitted with it did not run"


def _is_wrong(kernel: Kernel, buffers: Sequence[BoundBuffer], is_there: Callable[[Handle], bool]) -> bool:
    handles = [handle for handle, _, _ in buffers]
    written = [handle for binding, handle in zip(kernel.bindings, handles, strict=True) if binding.writes]
    return not all(map(is_there, handles)) or any(handles.count(handle) > 1 for handle in written)


def _name(work: Work | None) -> str:
    if work is None:
        return "upload"
    return "copy" if work.kernel is None else work.kernel.name


def _error(
    backend: Backend, operation: str | None, step: tuple[int, int] | None, why: object, entails: str
) -> LaunchError:
    if sys.platform != "emscripten":  # a page has no other device to take
        from .choosing.health import note_failure

        note_failure(backend)
    subject = "an operation" if operation is None else f"the operation '{operation}'"
    where = "" if step is None else f" (step {step[0]} of {step[1]} of a recorded program)"
    cause = _cause(why)
    return LaunchError(
        f"{subject}{where} failed on device '{backend.info.label}': {cause}{entails and f'. {entails}'}",
        operation=operation,
        step=None if step is None else step[0],
    )


def _cause(why: Any) -> str:
    text = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else str(why)
    return " ".join(text.split()).rstrip(".")
