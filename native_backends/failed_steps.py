"""Continues a submit after a step has failed: begins the later steps that do not need it, and raises the error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..runtime.backend import AllocationFailed, Backend, Command
from ..runtime.failures import consequence, independent, launch_error, needs_and_writes

if TYPE_CHECKING:
    from .steps import Step

__all__ = ["continue_after"]


def continue_after(
    backend: Backend, commands: Sequence[Command], every: Sequence[Step], failed: Step, why: Exception
) -> NoReturn:
    """Begin what does not need the step that failed, and raise whose fault it was.

    Args:
        backend: the device's.
        commands: what was submitted.
        every: its steps, those of recordings among them.
        failed: one of them; those before it have run.
        why: what it raised.

    Raises:
        AllocationFailed: it had no memory.
        LaunchError: anything else.
    """
    at = next(number for number, step in enumerate(every) if step is failed)
    behind, done = every[at + 1 :], 0
    spoiled = set(_touched(failed)[1])
    for step in independent(behind, spoiled, _touched):
        try:
            step.run()
            done += 1
        except Exception:  # the first error is raised below
            spoiled.update(_touched(step)[1])
    error = launch_error(backend, commands, failed, why, consequence(len(behind) - done))
    if isinstance(why, MemoryError | AllocationFailed):
        raise AllocationFailed(str(error), operation=error.operation) from why
    raise error from why


def _touched(step: Step) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the memory whose content a step needs, and what it writes."""
    if step.kernel is None:
        return [handle for handle, _, _ in step.buffers], [] if step.target is None else [step.target]
    return needs_and_writes(step.kernel, step.buffers)
