"""Tensors from nothing: constants and random numbers."""

from __future__ import annotations

import math
import operator
import struct
from typing import Any

from ..errors import UnsupportedError
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32, DType, dtype as dtype_of
from ..runtime.registry import device as device_of
from ..tensors import Tensor, as_shape
from .launch import apply

__all__ = ["arange", "full", "manual_seed", "ones", "rand", "randn", "zeros"]

_seed = 0
_stream = 0


def full(
    shape: Any, value: float, device: str | Device | None = None, dtype: str | DType = FLOAT32,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor with the same value everywhere.

    Example:
        >>> import optirs_web as ow
        >>> ow.full((2, 2), 7.0, device="cpu").tolist()
        [[7.0, 7.0], [7.0, 7.0]]
    """
    its_dtype = dtype_of(dtype)
    number = _fitting(value, its_dtype)
    result = apply(
        "identity",
        f"identity_{its_dtype.wgsl}",
        number,
        dtype=its_dtype,
        device=device_of(device),
        shape=as_shape(shape),
    )
    return Tensor(result.view, result.shape, its_dtype, requires_grad=requires_grad)


def _fitting(value: float, dtype: DType) -> float:
    try:
        number: float = float(value) if dtype is FLOAT32 else operator.index(value)  # type: ignore[arg-type]
        struct.pack(dtype.format, number)
    except (struct.error, OverflowError, TypeError) as error:
        raise OverflowError(f"{value!r} does not fit {dtype}") from error
    return number


def zeros(
    shape: Any, device: str | Device | None = None, dtype: str | DType = FLOAT32, requires_grad: bool = False
) -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0, device, dtype, requires_grad)


def ones(
    shape: Any, device: str | Device | None = None, dtype: str | DType = FLOAT32, requires_grad: bool = False
) -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, device, dtype, requires_grad)


def arange(end: int, device: str | Device | None = None) -> Tensor:
    """0, 1, ..., end - 1, as int32."""
    return apply("arange", "arange", dtype=dtype_of("int32"), device=device_of(device), shape=as_shape(end))


def manual_seed(seed: int) -> None:
    """Begin the random numbers of `randn` and `rand` anew. Seeds are integers from 0 to 2**64 - 1.

    Example:
        >>> import optirs_web as ow
        >>> ow.manual_seed(1); a = ow.randn((2,), device="cpu").tolist()
        >>> ow.manual_seed(1); a == ow.randn((2,), device="cpu").tolist()
        True
    """
    global _seed, _stream
    _seed, _stream = _checked_seed(seed), 0


def _checked_seed(seed: int) -> int:
    if not 0 <= operator.index(seed) < 1 << 64:
        raise ValueError(f"a seed is an integer from 0 to 2**64 - 1, not {seed}")
    return operator.index(seed)


def _random(function: str, shape: Any, device: str | Device | None, seed: int | None, requires_grad: bool) -> Tensor:
    global _stream
    target = device_of(device)
    if target.recording is not None:
        raise UnsupportedError(
            "random numbers inside a compiled step would be the same at each replay; draw them outside and pass them in"
        )
    if seed is None:
        key, stream = _seed, _stream
        _stream += 1
    else:
        key, stream = _checked_seed(seed), 0
    words = (key & 0xFFFFFFFF, key >> 32, stream & 0xFFFFFFFF)
    dimensions = as_shape(shape)
    if math.prod(dimensions) >= 1 << 32:
        raise UnsupportedError("more than 4,294,967,295 random numbers at once")
    result = apply("random", function, *words, device=target, shape=dimensions)
    return Tensor(result.view, result.shape, result.dtype, requires_grad=requires_grad)


def randn(
    shape: Any, device: str | Device | None = None, seed: int | None = None, requires_grad: bool = False
) -> Tensor:
    """Standard normal random numbers, the same on every device to 4 units in the last place.

    Philox 4x32-10 by counter (Salmon et al. 2011), then Box and Muller. Each call continues the sequence
    that `manual_seed` began; with `seed` the call stands alone.

    Example:
        >>> import optirs_web as ow
        >>> ow.randn((2, 3), device="cpu", seed=0).shape
        (2, 3)
    """
    return _random("random_normal", shape, device, seed, requires_grad)


def rand(
    shape: Any, device: str | Device | None = None, seed: int | None = None, requires_grad: bool = False
) -> Tensor:
    """Uniform random numbers in [0, 1), the same bits on every device. See `randn`."""
    return _random("random_uniform", shape, device, seed, requires_grad)
