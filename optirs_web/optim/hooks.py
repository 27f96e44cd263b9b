"""Hooks: functions that are called before and after a step, or when a state dict is made or loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = [
    "Hooks",
    "OptimizerHooks",
    "RemovableHandle",
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


class OptimizerHooks:
    """The hooks of one optimizer, and the calls that run them; around a step, those of every optimizer too."""

    def __init__(self) -> None:
        self.step_pre, self.step_post = Hooks(), Hooks()
        self.state_dict_pre, self.state_dict_post = Hooks(), Hooks()
        self.load_pre, self.load_post = Hooks(), Hooks()

    def before_step(
        self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the step: those that were passed, or those that a hook returned instead.

        Raises:
            TypeError: a hook returned something else.
        """
        for hook in (*global_step_pre_hooks, *self.step_pre):
            changed = hook(optimizer, args, kwargs)
            if changed is not None:
                is_pair = isinstance(changed, tuple) and len(changed) == 2
                if not (is_pair and isinstance(changed[0], tuple) and isinstance(changed[1], dict)):
                    raise TypeError(f"a hook before a step must return None or (args, kwargs), not {changed!r}")
                args, kwargs = changed
        return args, kwargs

    def after_step(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call the hooks after a step, with its arguments."""
        for hook in (*self.step_post, *global_step_post_hooks):
            hook(optimizer, args, kwargs)

    def before_state_dict(self, optimizer: Any) -> None:
        """Call the hooks before a state dict is made."""
        for hook in self.state_dict_pre:
            hook(optimizer)

    def after_state_dict(self, optimizer: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return the state dict, or what a hook returned instead."""
        for hook in self.state_dict_post:
            changed = hook(optimizer, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict

    def before_load(self, optimizer: Any, state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state dict to load: the one that was passed, or what a hook returned instead."""
        for hook in self.load_pre:
            changed = hook(optimizer, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict

    def after_load(self, optimizer: Any) -> None:
        """Call the hooks after a state dict was loaded."""
        for hook in self.load_post:
            hook(optimizer)


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
