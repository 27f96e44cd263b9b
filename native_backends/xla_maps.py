"""The map functions of kernels, printed for JAX."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..runtime.kernels import load_map_module
from ..wgsl import link, package_loader
from ..wgsl.print_python import compile_python, print_python

__all__ = ["codec", "functions_of", "printed"]


@cache
def functions_of(kernel: Any) -> Mapping[str, Any]:
    """The functions and structs of a kernel's `map_module`."""
    return compile_python(print_python(kernel.map_module, "jax"), f"{kernel.name} for jax")


@cache
def codec() -> Mapping[str, Any]:
    """The functions of ``shaders/lib/storage.wgsl``."""
    module = link(package_loader()(("lib", "storage")))
    return compile_python(print_python(module, "jax"), "storage for jax")


@cache
def printed(folder: str, name: str, *functions: str) -> Mapping[str, Any]:
    """These functions of ``shaders/FOLDER/NAME.wgsl``, and their structs."""
    return compile_python(print_python(load_map_module(folder, name, functions), "jax"), f"{name} for jax")
