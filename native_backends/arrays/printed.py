"""Map functions of WGSL as Python over NumPy or JAX arrays, printed and compiled once each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ...wgsl import link, load_map_module, package_loader
from ...wgsl.print_python import compile_python, print_python
from ...wgsl.python_dialects import Dialect

__all__ = ["codec", "functions_of", "printed"]


def _compiled(dialect: Dialect, module: Any, name: str) -> Mapping[str, Any]:
    return compile_python(print_python(module, dialect), f"{name} for {dialect.name}")


@cache
def functions_of(dialect: Dialect, kernel: Any) -> Mapping[str, Any]:
    """Return the functions and structs of a kernel's `map_module`."""
    return _compiled(dialect, kernel.map_module, kernel.name)


@cache
def codec(dialect: Dialect) -> Mapping[str, Any]:
    """Return the functions of ``shaders/lib/storage.wgsl``."""
    return _compiled(dialect, link(package_loader()(("lib", "storage"))), "storage")


@cache
def printed(dialect: Dialect, folder: str, name: str, *functions: str) -> Mapping[str, Any]:
    """Return these functions of ``shaders/FOLDER/NAME.wgsl``, and their structs."""
    return _compiled(dialect, load_map_module(folder, name, functions), name)
