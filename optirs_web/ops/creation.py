"""New tensors: constants, ranges and random numbers."""

from __future__ import annotations

import math
import operator
import struct
from typing import Any

from ..errors import UnsupportedError
from ..launch import apply, filled, need_float32
from ..runtime.device import Device
from ..runtime.dtypes import BOOL, FLOAT32, DType, DTypeLike, dtype as dtype_of
from ..runtime.registry import device as device_of
from ..tensor_class import Tensor, as_shape
from .random_state import manual_seed, next_draw

__all__ = ["arange", "bernoulli", "full", "manual_seed", "ones", "rand", "randn", "zeros"]


def full(
    shape: Any, value: float, device: str | Device | None = None, dtype: DTypeLike = FLOAT32,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor with the same value everywhere.

    Example:
        >>> import optirs_web as ow
        >>> ow.full((2, 2), 7.0, device="cpu").tolist()
        [[7.0, 7.0], [7.0, 7.0]]
    """
    type_ = dtype_of(dtype)
    result = filled(as_shape(shape), _fitting(value, type_), device_of(device), type_)
    return Tensor(result.view, result.shape, type_, requires_grad=requires_grad)


def _fitting(value: float, dtype: DType) -> float:
    if dtype is BOOL:
        return int(value != 0)
    try:
        number: float = float(value) if dtype.format == "f" else operator.index(value)  # type: ignore[arg-type]
        struct.pack(dtype.format, number)
    except (struct.error, OverflowError, TypeError) as error:
        raise OverflowError(f"{value!r} does not fit {dtype}") from error
    return number


def zeros(
    shape: Any, device: str | Device | None = None, dtype: DTypeLike = FLOAT32, requires_grad: bool = False
) -> Tensor:
    """A tensor of zeros.

    Example:
        >>> import optirs_web as ow
        >>> ow.zeros((2, 3), device="cpu").tolist()
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return full(shape, 0, device, dtype, requires_grad)


def ones(
    shape: Any, device: str | Device | None = None, dtype: DTypeLike = FLOAT32, requires_grad: bool = False
) -> Tensor:
    """A tensor of ones.

    Example:
        >>> import optirs_web as ow
        >>> ow.ones((2,), device="cpu", dtype="int32").tolist()
        [1, 1]
    """
    return full(shape, 1, device, dtype, requires_grad)


def arange(end: int, device: str | Device | None = None) -> Tensor:
    """0, 1, ..., end - 1, as int32.

    Example:
        >>> import optirs_web as ow
        >>> ow.arange(3, device="cpu").tolist()
        [0, 1, 2]
    """
    return apply("arange", "arange", 0, dtype=dtype_of("int32"), device=device_of(device), shape=as_shape(end))


def _random(function: str, shape: Any, device: str | Device | None, seed: int | None, requires_grad: bool) -> Tensor:
    target = device_of(device)
    dimensions = as_shape(shape)
    if math.prod(dimensions) >= 1 << 32:
        raise UnsupportedError("more than 4,294,967,295 random numbers at once")
    result = apply("random", function, *next_draw(target, seed), device=target, shape=dimensions)
    return Tensor(result.view, result.shape, result.dtype, requires_grad=requires_grad)


def randn(
    shape: Any, device: str | Device | None = None, seed: int | None = None, requires_grad: bool = False
) -> Tensor:
    """Standard normal random numbers, the same on every device to 4 units in the last place.

    Philox 4x32-10 by counter (Salmon et al. 2011), then Box and Muller. Each call continues the sequence
    that `manual_seed` began; with `seed` the call is independent of it. In a compiled step each replay draws new
    numbers; with `seed` all draw the same.

    Example:
        >>> import optirs_web as ow
        >>> ow.randn((2, 3), device="cpu", seed=0).shape
        (2, 3)
    """
    return _random("draw_normal", shape, device, seed, requires_grad)


def rand(
    shape: Any, device: str | Device | None = None, seed: int | None = None, requires_grad: bool = False
) -> Tensor:
    """Uniform random numbers in [0, 1), the same bits on every device. See `randn`.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.rand((100,), device="cpu", seed=0)
        >>> 0.0 <= x.min().item() <= x.max().item() < 1.0
        True
    """
    return _random("draw_uniform", shape, device, seed, requires_grad)


def bernoulli(p: Tensor) -> Tensor:
    """1 with the probability of each element of `p`, else 0, as float32; NaN where that is no probability.

    No gradient: the numbers do not depend smoothly on `p`. See `rand`.

    Raises:
        UnsupportedError: the tensor is not float32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web.ops import bernoulli
        >>> bernoulli(ow.tensor([0.0, 1.0], device="cpu")).tolist()
        [0.0, 1.0]
    """
    need_float32("bernoulli", p)
    return apply("random", "draw_bernoulli", p, *next_draw(p.device), shape=p.shape)
