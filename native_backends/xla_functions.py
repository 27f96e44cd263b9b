"""Functions of WGSL that take part in replacements, as JAX."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..runtime.kernels import load_map_module
from ..wgsl.print_python import compile_python, print_python

__all__ = ["printed"]


@cache
def printed(folder: str, name: str, *functions: str) -> Mapping[str, Any]:
    """These functions of a file of map functions, and its structs."""
    return compile_python(print_python(load_map_module(folder, name, functions), "jax"), name)
