"""Names that a command does not know: which one was meant."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import nearest

__all__ = ["similar"]


def similar(name: str, known: Iterable[str]) -> str:
    """Return the part of a message that has the nearest known name, whatever its capitals; nothing if none is near.

    Example:
        >>> similar("adanw", ["AdamW", "SGD"]), similar("nope", ["AdamW", "SGD"])
        (" (did you mean 'AdamW'?)", '')
    """
    near = nearest(name, known)
    return f" (did you mean '{near}'?)" if near else ""
