"""Which tensors take part in a kernel over a table of entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

__all__ = ["taking_part"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


def taking_part(p: Parameters, entries: Array, members: int, scalars: Array) -> Iterator[tuple[int, Array, Any]]:
    """For each entry whose tensor takes part: its number, the tensor's row of scalars, and its members.

    A kernel without a gate asks for word 0 only, which says that the tensor is active.
    """
    table = scalars.view(np.uint32).reshape(-1, p["row_words"])
    for number, entry in enumerate(entries.view(np.uint32).reshape(-1, members).tolist()):
        row = table[entry[0]]
        if row[0] == 1 and row[p.get("gate_word", 0)] != 0:
            yield number, row, entry
