"""Flags: attributes that are True or False, as `requires_grad` and `training`, and which of them a recording used.

Whoever changes one begins a new epoch. Within an epoch nothing is looked at again.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from .modes import Block, Mode

__all__ = ["UsedFlags", "flag_changed", "flag_used", "used_flags"]

_epoch = object()
_observer: Mode[UsedFlags | None] = Mode("used_flags", None)

used_flags = _observer.get
"""Return the notes of the flags that this thread or task uses, if any are taken."""


class UsedFlags:
    """The flags that were read or set in a block, with the values that they had before.

    Example:
        >>> import optirs_web as ow
        >>> used, w = UsedFlags(), ow.Parameter([1.0], device="cpu")
        >>> with used.noted():
        ...     w.requires_grad
        True
        >>> used.finish()
        >>> w.requires_grad = False
        >>> used.are_unchanged()
        False
    """

    def __init__(self) -> None:
        """None as yet."""
        self._noted: dict[tuple[int, str], tuple[weakref.ref[Any], bool]] = {}
        self._flags: list[tuple[weakref.ref[Any], str, bool]] = []
        self._epoch: object = None

    def noted(self) -> Block[UsedFlags | None]:
        """A block in which flags are noted."""
        return Block(_observer, self)

    def note(self, owner: Any, name: str, value: bool) -> None:
        """A flag of `owner` is used, and has this value. The owner is not kept alive: what a step makes may go."""
        noted = self._noted.get((id(owner), name))
        if noted is None or noted[0]() is not owner:  # or that of one that is gone, at the same address
            self._noted[id(owner), name] = weakref.ref(owner), value

    def finish(self, but: Sequence[Any] = ()) -> None:
        """Note no more, and leave out the flags of some, and of those that are gone."""
        left_out = {*map(id, but), id(None)}
        self._flags = [
            (ref, name, value) for (_, name), (ref, value) in self._noted.items() if id(ref()) not in left_out
        ]
        self._noted = {}

    def are_unchanged(self) -> bool:
        """All have the values that they had."""
        epoch = _epoch
        if self._epoch is epoch:
            return True
        for ref, name, value in self._flags:
            owner = ref()
            if owner is not None and getattr(owner, name) is not value:
                return False
        self._epoch = epoch  # that of before the comparison: what has changed since is in a later one
        return True


def flag_used(owner: Any, name: str, value: bool) -> None:
    """A flag of `owner` is read, and has this value."""
    used = _observer.get()
    if used is not None:
        used.note(owner, name, value)


def flag_changed(owner: Any, name: str, before: bool) -> None:
    """A flag of `owner` has been set to another value than it had before."""
    global _epoch
    flag_used(owner, name, before)
    _epoch = object()  # which no other thread makes
