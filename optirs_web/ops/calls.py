"""Calls of operations by users: the device and the type that they run in are chosen here."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from ..runtime.modes import Mode

if TYPE_CHECKING:
    from ..runtime.dtypes import DType

__all__ = ["Autocast", "autocast", "autocast_to", "operation"]

place: Callable[[Any, Any, Any], Any] | None = None
"""Runs an operation where `optirs_web.placement` says, given its arguments; set when that is first used. What calls an
operation by its own module, as rules of gradients and optimizers do, has it run where its operands are stored."""

chosen: Callable[..., Any] | None = None
"""Calls operations in place of their callers, and chooses types. `precision` puts it here when there is a choice."""


class Autocast(NamedTuple):
    """Options of the innermost `autocast`, and the parameters that were cast since the outermost one began."""

    dtype: DType | None
    caches: bool
    casts: dict[Any, Any]


autocast: Mode[Autocast | None] = Mode("autocast", None)


def autocast_to() -> DType | None:
    """The type that products take their operands in, where `autocast` is on."""
    state = autocast.setting().value
    return None if state is None else state.dtype


def operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function for users, with types from `chosen` and the device from `place` where these are set."""

    @wraps(function)
    def typed(*arguments: Any, **options: Any) -> Any:
        return chosen(function, arguments, options) if chosen else function(*arguments, **options)

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if place:
            return place(typed, arguments, options)
        return chosen(function, arguments, options) if chosen else function(*arguments, **options)

    return call
