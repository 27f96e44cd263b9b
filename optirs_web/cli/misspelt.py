"""Names that a command does not know: which one was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["similar"]


def similar(name: str, known: Iterable[str]) -> str:
    """Return the part of a message that has the nearest known name, whatever its capitals; nothing if none is near.

    Example:
        >>> similar("adanw", ["AdamW", "SGD"]), similar("nope", ["AdamW", "SGD"])
        (" (did you mean 'AdamW'?)", '')
    """
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_lower, 1)
    return f" (did you mean '{by_lower[near[0]]}'?)" if near else ""
