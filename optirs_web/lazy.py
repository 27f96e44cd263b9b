"""Public names of packages, each imported when it is first used. The stub file that type checkers read lists them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import resolve_name
from typing import Any

__all__ = ["public_names"]


def public_names(
    package: str, wrap: Callable[[Any], Any] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, from the relative imports in its `__init__.pyi`.

    Example: with ``from .unary import exp as exp`` in ``optirs_web/ops/__init__.pyi``, ``ops.exp`` imports
    `optirs_web.ops.unary` when it is first used.

    Args:
        package: The package's `__name__`.
        wrap: Called with each value that is not a module; the result is the public value.
    """
    module = sys.modules[package]
    stub = module.__spec__.loader.get_data(f"{module.__path__[0]}/__init__.pyi")  # type: ignore[union-attr]
    sources = {
        alias.name: resolve_name("." * statement.level + (statement.module or ""), package)
        for statement in ast.parse(stub).body
        if isinstance(statement, ast.ImportFrom) and statement.level
        for alias in statement.names
    }
    names = sorted(sources)

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        if sources[name] == package:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(sources[name]), name)
        value = wrap(value) if wrap else value
        setattr(module, name, value)
        return value

    return get, lambda: names, names
