"""The report of what uses a device's memory, for the error that there is no more."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING

from .buffer import Buffer
from .program import Program, ProgramBuffer

if TYPE_CHECKING:
    from .device import Device

__all__ = ["holders", "largest_holders"]

STEP, KEPT, NO_KERNEL = "(compiled steps)", "(parameters, optimizers, inputs of steps)", "(no kernel)"
_NAMED = 4


def holders(device: Device) -> Counter[str]:
    """Return the bytes in use by the kernel that first used them; memory of steps and of models is counted apart."""
    nbytes_by_owner = Counter[str]()
    for candidate in gc.get_objects():
        # isinstance may run code of an object.
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


def _owner(buffer: Buffer, device: Device) -> str:
    """Return the name under which a buffer is counted, by the owner of its memory; "" where it has none of its own."""
    give_back = buffer._give_back
    owner = getattr(give_back, "__self__", None)
    if give_back is None or isinstance(owner, Program):  # a program's memory is counted as a whole
        return ""
    return KEPT if owner is device else buffer.first_kernel or NO_KERNEL


def largest_holders(device: Device) -> str:
    """Return a sentence with the kernels that use the most memory."""
    largest = holders(device).most_common()
    others = sum(nbytes for _, nbytes in largest[_NAMED:])
    named = [f"{name} {nbytes:,}" for name, nbytes in (*largest[:_NAMED], ("others", others)) if nbytes]
    return f"In use, by operation: {', '.join(named)}." if named else ""
