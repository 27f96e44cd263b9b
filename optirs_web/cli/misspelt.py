"""`similar`: suggests a known name where a command does not know the one that was typed."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import nearest

__all__ = ["similar"]


def similar(name: str, names: Iterable[str]) -> str:
    """Return the part of a message that suggests the nearest of `names`, ignoring case; "" if none is near.

    Example:
        >>> similar("adanw", ["AdamW", "SGD"]), similar("nope", ["AdamW", "SGD"])
        (" (did you mean 'AdamW'?)", '')
    """
    near = nearest(name, names)
    return f" (did you mean '{near}'?)" if near else ""
