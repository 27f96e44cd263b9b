"""Modes: what a block such as `no_grad` changes for the thread or asyncio task that it runs in, and for no other.

A mode is a context variable. A thread begins with none of the blocks of the thread that started it; an asyncio task,
and what `asyncio.to_thread` calls, with those that were open where it was made, whatever these do afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextvars import ContextVar, Token
from functools import wraps
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

__all__ = ["Block", "Mode"]

_T = TypeVar("_T")


class _Setting(Generic[_T]):
    """The value that a block gives a mode, inside the blocks around it."""

    __slots__ = ("block", "outer", "token", "value")

    token: Token[_Setting[_T]]
    """Restores the context variable where the block was entered; no other context accepts it."""

    def __init__(self, value: _T, outer: _Setting[_T] | None, block: Block[_T] | None) -> None:
        self.value = value
        self.outer = outer
        self.block = block


class Mode(Generic[_T]):
    """A value that blocks change: `get` returns that of the innermost one here.

    Args:
        name: for debuggers.
        value: outside of all blocks.
    """

    __slots__ = ("_innermost", "setting")

    def __init__(self, name: str, value: _T) -> None:
        outside = _Setting(value, None, None)
        self._innermost: ContextVar[_Setting[_T]] = ContextVar(name, default=outside)
        self.setting = self._innermost.get
        """Return the object that has the value, for those who ask often: ``mode.setting().value``."""

    def get(self) -> _T:
        """The value in this thread or task."""
        return self._innermost.get().value

    def blocks(self) -> Iterator[Block[_T]]:
        """All that are open here, the innermost first."""
        setting = self._innermost.get()
        while setting.block is not None:
            yield setting.block
            assert setting.outer is not None
            setting = setting.outer

    def replace(self, value: _T) -> None:
        """Have the innermost block here mean another value, for this thread or task; it ends with the block."""
        setting = self._innermost.get()
        replacing = _Setting(value, setting.outer, setting.block)
        if setting.outer is not None:
            replacing.token = setting.token
        self._innermost.set(replacing)

    def enter(self, block: Block[_T], value: _T) -> _Setting[_T]:
        """Have the mode be `value` until `leave`."""
        setting = _Setting(value, self._innermost.get(), block)
        setting.token = self._innermost.set(setting)
        return setting

    def leave(self, block: Block[_T], entered: _Setting[_T] | None) -> None:
        """Undo what the block did last. Blocks of generators may end in another order than they began."""
        inner, setting = None, (innermost := self._innermost.get())
        while setting.block is not block:
            if setting.outer is None:  # of a generator that another thread closes: it is over where it began
                if entered is not None and entered.outer is not None:
                    entered.value = entered.outer.value
                return
            inner, setting = setting, setting.outer
        assert setting.outer is not None
        if inner is not None:
            inner.outer = setting.outer
        try:
            self._innermost.reset(setting.token)
        except ValueError:  # of an asynchronous generator that its loop closes, in a copy of the context: likewise
            setting.value = setting.outer.value
        self._innermost.set(setting.outer if inner is None else innermost)


class Block(Generic[_T]):
    """A ``with`` block in which a mode has a value; or a decorator of a function, coroutine or generator.

    In a generator's own ``with`` block the mode holds for its caller as well until the generator goes on, as in torch;
    a decorated generator leaves its caller alone.
    """

    def __init__(self, mode: Mode[_T], value: _T) -> None:
        self._mode = mode
        self._value = value
        self._entered: _Setting[_T] | None = None

    def _value_within(self, outer: _T) -> _T:
        """The value inside the block, where it was `outer` before."""
        return self._value

    def __enter__(self) -> Any:
        self._entered = self._mode.enter(self, self._value_within(self._mode.get()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entered, self._entered = self._entered, None  # which refers to the block
        self._mode.leave(self, entered)

    def _again(self) -> Self:
        """A block of its own for one call of a decorated function."""
        return type(self)(self._mode, self._value)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, called inside such a block.

        Raises:
            TypeError: it makes an asynchronous generator, which runs in pieces of other tasks.
        """
        import inspect  # which takes longer than all that a first tensor needs

        if inspect.isasyncgenfunction(function):
            raise TypeError(
                f"an asynchronous generator cannot be decorated: write 'with' in {function.__name__} itself"
            )
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def call_async(*arguments: Any, **options: Any) -> Any:
                with self._again():
                    return await function(*arguments, **options)

            return call_async
        if inspect.isgeneratorfunction(function):

            @wraps(function)
            def generate(*arguments: Any, **options: Any) -> Any:
                return (yield from _items_within(self._again(), function(*arguments, **options)))

            return generate

        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            with self._again():
                return function(*arguments, **options)

        return call


def _items_within(block: Block[Any], generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run a generator in the block, which is left whenever it yields."""
    advance: Callable[..., Any] = generator.send
    sent: Any = None
    while True:
        try:
            with block:
                item = advance(sent)
        except StopIteration as end:
            return end.value
        try:
            advance, sent = generator.send, (yield item)
        except BaseException as error:  # GeneratorExit too: the generator's own cleaning up runs in the block
            advance, sent = generator.throw, error
