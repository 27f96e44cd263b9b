"""What is done when a device has no room, before that is an error; and who has the memory, for the error to say."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING

from .compiled import Compiled
from .runtime.buffer import Buffer
from .runtime.program import Program, ProgramBuffer

if TYPE_CHECKING:
    from .runtime.device import Device

__all__ = ["holders", "let_go", "told"]

STEP, KEPT, NO_KERNEL = "(compiled steps)", "(parameters, optimizers, inputs of steps)", "(no kernel)"
_NAMED = 4


def let_go(device: Device) -> None:
    """Drop what can be made again: memory in garbage cycles, and the recordings of compiled steps that do not run now.

    A step whose recording was dropped is recorded again when it is called.
    """
    for one in gc.get_objects():
        if issubclass(type(one), Compiled):  # to ask an object for its class may run its code
            one.forget(device)
    gc.collect()


def holders(device: Device) -> Counter[str]:
    """Bytes in use by the kernel that was given them first; what steps and models keep is told apart."""
    found = Counter[str]()
    for one in gc.get_objects():
        if issubclass(type(one), Program) and one.device is device:
            found[STEP] += one.nbytes
        elif issubclass(type(one), Buffer) and one.device is device and not isinstance(one, ProgramBuffer):
            found[_owner(one, device)] += one.nbytes
    del found[""]
    return +found


def _owner(buffer: Buffer, device: Device) -> str:
    """What a buffer is counted as, by who takes its memory back; "" where it has none of its own."""
    give_back = buffer._give_back
    owner = getattr(give_back, "__self__", None)
    if give_back is None or isinstance(owner, Program):  # a program's memory is counted as a whole
        return ""
    return KEPT if owner is device else buffer.first_kernel or NO_KERNEL


def told(device: Device) -> str:
    """A sentence with the largest holders."""
    largest = holders(device).most_common()
    rest = sum(nbytes for _, nbytes in largest[_NAMED:])
    named = [f"{name} {nbytes:,}" for name, nbytes in (*largest[:_NAMED], ("others", rest)) if nbytes]
    return f"In use, by operation: {', '.join(named)}." if named else ""
