"""Steps taken when a device is out of memory, before an error is raised, and the report of memory for the error."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING

from .compiled import Compiled
from .runtime.buffer import Buffer
from .runtime.program import Program, ProgramBuffer

if TYPE_CHECKING:
    from .runtime.device_memory import DeviceMemory

__all__ = ["holders", "let_go", "told"]

STEP, KEPT, NO_KERNEL = "(compiled steps)", "(parameters, optimizers, inputs of steps)", "(no kernel)"
_NAMED = 4


def let_go(device: DeviceMemory) -> None:
    """Free memory in garbage cycles, and the recordings of compiled steps that do not run now.

    A step whose recording was dropped is recorded again when it is called.
    """
    for candidate in gc.get_objects():
        if issubclass(type(candidate), Compiled):  # isinstance may run code of an object
            candidate.forget(device)
    gc.collect()


def holders(device: DeviceMemory) -> Counter[str]:
    """Return the bytes in use by the kernel that first used them; memory of steps and of models is counted apart."""
    nbytes_by_owner = Counter[str]()
    for candidate in gc.get_objects():
        if issubclass(type(candidate), Program) and candidate.device is device:
            nbytes_by_owner[STEP] += candidate.nbytes
        elif (
            issubclass(type(candidate), Buffer)
            and candidate.device is device
            and not isinstance(candidate, ProgramBuffer)
        ):
            nbytes_by_owner[_owner(candidate, device)] += candidate.nbytes
    del nbytes_by_owner[""]
    return +nbytes_by_owner


def _owner(buffer: Buffer, device: DeviceMemory) -> str:
    """Return the name under which a buffer is counted, by the owner of its memory; "" where it has none of its own."""
    give_back = buffer._give_back
    owner = getattr(give_back, "__self__", None)
    if give_back is None or isinstance(owner, Program):  # a program's memory is counted as a whole
        return ""
    return KEPT if owner is device else buffer.first_kernel or NO_KERNEL


def told(device: DeviceMemory) -> str:
    """Return a sentence with the kernels that use the most memory."""
    largest = holders(device).most_common()
    others = sum(nbytes for _, nbytes in largest[_NAMED:])
    named = [f"{name} {nbytes:,}" for name, nbytes in (*largest[:_NAMED], ("others", others)) if nbytes]
    return f"In use, by operation: {', '.join(named)}." if named else ""
