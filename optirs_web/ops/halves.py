"""Conversions to and from float16 and bfloat16."""

from __future__ import annotations

from ..autograd import record
from ..runtime.dtypes import FLOAT32, DType
from ..tensors import Tensor, empty
from .compare import astype
from .launch import launch_map

__all__ = ["converted"]


def converted(x: Tensor, dtype: DType) -> Tensor:
    """A tensor as another type, where one of the two is float16 or bfloat16.

    Rounded to the nearest, ties to even; beyond the largest number, which is 65,504 in float16, infinite. Gradient: g
    as the type of x.
    """
    if x.dtype.wgsl != "f32" or dtype.wgsl != "f32":
        return astype(astype(x, FLOAT32), dtype)
    result = empty(x.shape, dtype, x.device)
    if x.size:
        launch_map("identity", "identity_f32", [x], [x.walk.strides], x.shape, result)
    source_type = x.dtype
    return record(result, (x, lambda g, _: astype(g, source_type)))
