"""Work that is written once and serves both a call that waits and its awaitable twin.

Such work is a generator: it yields what it wants to know, and is sent the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

__all__ = ["drive", "drive_async"]

_Result = TypeVar("_Result")


def drive(work: Generator[Any, Any, _Result], answer: Callable[[Any], Any]) -> _Result:
    """Run a generator to the end and return the result, with each question that it yields answered by a call."""
    sent: Any = None
    while True:
        try:
            request = work.send(sent)
        except StopIteration as done:
            result: _Result = done.value
            return result
        sent = answer(request)


async def drive_async(work: Generator[Any, Any, _Result], answer: Callable[[Any], Awaitable[Any]]) -> _Result:
    """The awaitable twin of `drive`."""
    sent: Any = None
    while True:
        try:
            request = work.send(sent)
        except StopIteration as done:
            result: _Result = done.value
            return result
        sent = await answer(request)
