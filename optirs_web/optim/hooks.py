"""Hooks: functions that are called before and after a step, or when a state dict is made or loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = [
    "Hooked",
    "Hooks",
    "RemovableHandle",
    "global_step_post_hooks",
    "global_step_pre_hooks",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
]


class RemovableHandle:
    """The registration of a hook, which `remove()` ends, as does the end of a `with` block."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def remove(self) -> None:
        """Remove the hook. A second call does nothing."""
        self._hooks._functions.pop(self, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Hooks:
    """Functions in the order in which they are called."""

    def __init__(self) -> None:
        self._functions: dict[RemovableHandle, Callable[..., Any]] = {}

    def register(self, hook: Callable[..., Any], *, prepend: bool = False) -> RemovableHandle:
        """Add a function, at the end or with `prepend` at the beginning."""
        if not callable(hook):
            raise TypeError(f"a hook must be a function, not {type(hook).__name__}")
        handle = RemovableHandle(self)
        added = {handle: hook}
        self._functions = {**added, **self._functions} if prepend else {**self._functions, **added}
        return handle

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(list(self._functions.values()))


class Hooked:
    """The base class of optimizers with hooks."""

    def _make_hooks(self) -> None:
        whens = ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_pre", "load_post")
        self._hooks = {when: Hooks() for when in whens}

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Have `hook(optimizer, args, kwargs)` called before each step; it may return other (args, kwargs).

        Within a compiled step hooks are called while it is recorded, as all Python in it.
        """
        return self._hooks["step_pre"].register(hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Have `hook(optimizer, args, kwargs)` called after each step."""
        return self._hooks["step_post"].register(hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have `hook(optimizer)` called before a state dict is made."""
        return self._hooks["state_dict_pre"].register(hook, prepend=prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have `hook(optimizer, state_dict)` called after a state dict is made; it may return another dict."""
        return self._hooks["state_dict_post"].register(hook, prepend=prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have `hook(optimizer, state_dict)` called before one is loaded; it may return another dict."""
        return self._hooks["load_pre"].register(hook, prepend=prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have `hook(optimizer)` called after a state dict was loaded."""
        return self._hooks["load_post"].register(hook, prepend=prepend)


global_step_pre_hooks = Hooks()
global_step_post_hooks = Hooks()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Have `hook(optimizer, args, kwargs)` called before the step of any optimizer, before the optimizer's own hooks.

    Example:
        >>> import optirs_web as ow
        >>> with ow.optim.register_optimizer_step_pre_hook(lambda *_: print("before")):
        ...     ow.optim.SGD([ow.Parameter([1.0], device="cpu")]).step(grads=[[1.0]])
        before
    """
    return global_step_pre_hooks.register(hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Have `hook(optimizer, args, kwargs)` called after the step of any optimizer, after the optimizer's own hooks.

    Example:
        >>> import optirs_web as ow
        >>> with ow.optim.register_optimizer_step_post_hook(lambda *_: print("after")):
        ...     ow.optim.SGD([ow.Parameter([1.0], device="cpu")]).step(grads=[[1.0]])
        after
    """
    return global_step_post_hooks.register(hook)
