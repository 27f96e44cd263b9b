"""The codec of stored elements in NumPy: the functions of the shaders, but for those that NumPy has faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from ...wgsl.python_dialects import NUMPY
from . import printed

__all__ = ["codec"]

Array = np.ndarray[Any, Any]


@cache
def codec() -> Mapping[str, Callable[..., Any]]:
    """Return the functions of ``shaders/lib/storage.wgsl``. Codes are integers of any length that holds them."""
    functions: dict[str, Callable[..., Any]] = {
        **printed.codec(NUMPY),
        "from_bfloat16": lambda codes: np.left_shift(codes, 16, dtype=np.uint32).view(np.float32),
        "from_float16": lambda codes: codes.astype(np.uint16, copy=False).view(np.float16).astype(np.float32),
        "to_float16": lambda values: values.astype(np.float16).view(np.uint16),
    }
    for kind in ("dynamic8", "dynamic8_unsigned"):
        functions |= {f"from_{kind}": partial(_from_map, kind), f"to_{kind}": partial(_to_map, kind)}
    return functions


@cache
def _numbers(kind: str) -> Array:
    """Return the numbers of an 8-bit map, from the smallest to the largest."""
    numbers: Array = printed.codec(NUMPY)[f"from_{kind}"](np.arange(256, dtype=np.uint32), np.float32(1))
    return numbers


@cache
def _edges(kind: str) -> Array:
    """Return the numbers in the middle of two of an 8-bit map."""
    numbers = _numbers(kind)
    edges: Array = (numbers[1:] + numbers[:-1]) * np.float32(0.5)
    return edges


def _from_map(kind: str, codes: Array, largest: Array) -> Array:
    values: Array = _numbers(kind)[codes] * largest
    return values


def _to_map(kind: str, values: Array, largest: Array) -> Array:
    return np.searchsorted(_edges(kind), values / np.where(largest > 0, largest, np.float32(1)))
