"""Hooks of a module: functions that are called with the arguments or the result of `forward`, and may replace them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["RemovableHandle", "after_forward", "before_forward"]

Hooks = dict[int, tuple[Callable[..., Any], bool]]
"""By number, in the order of registration; the flag says that the hook takes the keyword arguments too."""


class RemovableHandle:
    """The registration of a hook, which `remove()` ends, as does the end of a `with` block."""

    def __init__(self, hooks: Hooks, hook: Callable[..., Any], with_kwargs: bool, prepend: bool) -> None:
        """Register a hook."""
        self._hooks = hooks
        self._number = max(hooks, default=-1) + 1
        others = dict(hooks) if prepend else {}
        if prepend:
            hooks.clear()
        hooks[self._number] = (hook, with_kwargs)
        hooks.update(others)

    def remove(self) -> None:
        """Remove the hook. May be called twice."""
        self._hooks.pop(self._number, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def before_forward(
    module: Any, hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Call the hooks before `forward`, and return its arguments, replaced by their results."""
    for hook, with_kwargs in list(hooks.values()):
        if with_kwargs:
            changed = hook(module, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise TypeError(
                        f"a forward pre-hook with kwargs must return None or (args, kwargs), not {changed!r}"
                    )
                args, kwargs = changed
        else:
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    return args, kwargs


def after_forward(module: Any, hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Call the hooks after `forward`, and return its result, replaced by theirs."""
    for hook, with_kwargs in list(hooks.values()):
        changed = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
        if changed is not None:
            result = changed
    return result
