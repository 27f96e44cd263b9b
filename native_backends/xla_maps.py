"""The map functions of kernels, printed for JAX."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..wgsl import link, package_loader
from ..wgsl.print_python import compile_python, print_python

__all__ = ["codec", "functions_of"]


@cache
def functions_of(kernel: Any) -> Mapping[str, Any]:
    """The functions and structs of a kernel's `map_module`."""
    return compile_python(print_python(kernel.map_module, "jax"), f"{kernel.name} for jax")


@cache
def codec() -> Mapping[str, Any]:
    """The functions of ``shaders/lib/storage.wgsl``."""
    module = link(package_loader()(("lib", "storage")))
    return compile_python(print_python(module, "jax"), "storage for jax")
