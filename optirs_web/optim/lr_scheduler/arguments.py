"""Checks of the arguments of schedulers by their names, before anything is changed."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

from ...errors import quoted
from ..options import LARGEST_FLOAT32, NotANumberError

__all__ = ["DividesByZeroError", "check_all", "checked"]

Class = TypeVar("Class", bound=type[Any])
Test = Callable[[float], bool]


class DividesByZeroError(ValueError, ZeroDivisionError):
    """A number by which steps would divide is 0. It is a ZeroDivisionError, too, as torch's steps raise."""


def _any(value: float) -> bool:
    return True


_FINITE = ("a finite number", Real, _any)
_NOT_ZERO = ("a finite number other than 0", Real, _any)
_COUNT = ("a number >= 0", Real, lambda value: value >= 0)
_SOME = ("a number > 0", Real, lambda value: value > 0)
_ONE_OR_ALL = {"base_lr", "max_lr", "base_momentum", "max_momentum", "min_lr"}
"""A number, or one for each group."""
_SEQUENCES = {"milestones", "stages", "factors"}
_MAY_BE_NONE = {"step_size_down", "total_steps", "epochs", "steps_per_epoch", "factors", "end_value"}
_MAY_BE_INFINITE = {"patience", "cooldown"}

_ARGUMENTS: dict[str, tuple[str, type[Any], Test]] = {
    **dict.fromkeys(("gamma", "factor", "start_factor", "end_factor", "total_iters", "power", "eta_min"), _FINITE),
    **dict.fromkeys(("T_0", "T_mult", "pct_start", "total_steps", "epochs", "steps_per_epoch"), _FINITE),
    **dict.fromkeys((*_ONE_OR_ALL, *_SEQUENCES, "threshold", "eps"), _FINITE),
    **dict.fromkeys(("step_size", "T_max", "div_factor", "final_div_factor"), _NOT_ZERO),
    **dict.fromkeys(("patience", "cooldown", "step_size_down"), _COUNT),
    "step_size_up": _SOME,
    "last_epoch": ("an integer >= -1", Integral, lambda value: value >= -1),
}


def checked(cls: Class) -> Class:
    """Have the constructor refuse arguments that are of another kind than their names say.

    Those in `_refuses` of the class it refuses itself, in torch's words.

    Raises:
        TypeError: a number is something else.
        ValueError: a number is out of range, NaN or infinite. The messages name the argument.
    """
    make, taken = cls.__init__, inspect.signature(cls.__init__)

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            bound = taken.bind(self, *args, **kwargs).arguments
        except TypeError:
            bound = {}  # the call says what is missing or unknown
        names = _ARGUMENTS.keys() - getattr(cls, "_refuses", ())
        check_all(cls.__name__, {name: value for name, value in bound.items() if name in names})
        make(self, *args, **kwargs)

    cls.__init__ = __init__
    return cls


def check_all(owner: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of a scheduler or a schedule that are not numbers, or not such as their names say."""
    for name, value in arguments.items():
        if value is not None or name not in _MAY_BE_NONE:
            _check(owner, name, value)


def _check(owner: str, name: str, value: Any) -> None:
    words, kind, is_right = about = _ARGUMENTS.get(name, _FINITE)
    values = [value]
    if name in _SEQUENCES or (name in _ONE_OR_ALL and isinstance(value, (list, tuple))):
        words = f"numbers, each {words}"
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise NotANumberError(f"{owner}: {name} must be {words}, not {quoted(value)}")
        values = list(value)
    for number in values:
        if not isinstance(number, kind):
            raise NotANumberError(f"{owner}: {name} must be {words}, not {quoted(number)}")
        if number == 0 and about in (_NOT_ZERO, _SOME):
            raise DividesByZeroError(f"{owner}: {name} must be {words}, not 0")
        is_finite = abs(number) <= LARGEST_FLOAT32 or (number == math.inf and name in _MAY_BE_INFINITE)
        if not (is_finite and is_right(number)):
            raise ValueError(f"{owner}: {name} must be {words}, not {quoted(number)}")
