"""Comparisons, logic, choices between two values, and conversions from one element type to another."""

from __future__ import annotations

import math
from typing import Any

from ..autograd import record
from ..errors import UnsupportedError
from ..launch import Operand, apply, launch_map, need_float32
from ..runtime.dtypes import BOOL, FLOAT32, INT32, UINT32, DType, DTypeLike, dtype as dtype_of
from ..tensor_class import Tensor, empty, tensor
from .operands import as_number, shape_of
from .reduce import sum_to

__all__ = [
    "astype",
    "equal",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "where",
]

_RANGES = {BOOL: (0, 1), INT32: (-(1 << 31), (1 << 31) - 1), UINT32: (0, (1 << 32) - 1)}


def astype(x: Tensor, dtype: DTypeLike) -> Tensor:
    """The values as another type; the tensor itself if it has that type.

    Floats are cut off towards zero; those out of range become the nearest integer there is, and NaN becomes 0 (torch
    leaves both open). Integers of other sign wrap. As a bool everything but 0 is true, NaN too. Integers have no
    gradient, so only floats to floats keep one. float16 and bfloat16 are rounded to the nearest, ties to even; beyond
    the largest number, which is 65,504 in float16, they are infinite.

    Example:
        >>> import optirs_web as ow
        >>> ow.tensor([-1.5, 0.0, 2.5], device="cpu").astype("int32").tolist()
        [-1, 0, 2]
    """
    target = dtype_of(dtype)
    if target is x.dtype:
        return x
    if min(target.itemsize, x.dtype.itemsize) < 4:
        return _with_16_bits(x, target)
    if x.dtype is BOOL and target is UINT32:
        return Tensor(x.view, x.shape, target)
    function = f"{x.dtype.wgsl}_to_{'bool' if target is BOOL else target.wgsl}"
    return apply("convert", function, x, dtype=target)


def _with_16_bits(x: Tensor, dtype: DType) -> Tensor:
    """Return a tensor as another type, where one of the two is float16 or bfloat16."""
    if x.dtype.wgsl != "f32" or dtype.wgsl != "f32":
        return astype(astype(x, FLOAT32), dtype)
    result = empty(x.shape, dtype, x.device)
    if x.size:
        launch_map("identity", "identity_f32", [x], [x.strided.strides], x.shape, result)
    source_type = x.dtype
    return record(result, (x, lambda g, _: astype(g, source_type)))


def _as_float32(value: Operand) -> Operand:
    """Return a tensor of any type as float32, or a number as one that float32 can hold."""
    return astype(value, FLOAT32) if isinstance(value, Tensor) else as_number(value)


def _common_dtype(*values: Any) -> DType:
    """Return the type in which values are compared or chosen: that of the tensors, unless a number does not fit it.

    Raises:
        UnsupportedError: one is int32 and another uint32.
    """
    types = {FLOAT32 if value.dtype.wgsl == "f32" else value.dtype for value in values if isinstance(value, Tensor)}
    if len(types) > 1:
        types -= {BOOL}
    if len(types) > 1 and FLOAT32 not in types:
        raise UnsupportedError("an int32 and a uint32 tensor have no common type; convert one of them with astype")
    if FLOAT32 in types or not types:
        return FLOAT32
    (common,) = types
    numbers = [value for value in values if not isinstance(value, Tensor)]
    if common is BOOL and not all(isinstance(number, bool) for number in numbers):
        common = INT32
    low, high = _RANGES[common]
    return common if all(low <= number <= high and number == math.floor(number) for number in numbers) else FLOAT32


def _operands(*values: Any) -> tuple[DType, list[Operand]]:
    """Return values as operands of their common type; arrays go to the device of the tensors."""
    device = next((value.device for value in values if isinstance(value, Tensor)), None)
    operands = [
        value if isinstance(value, (Tensor, bool, int, float)) else tensor(value, device=device) for value in values
    ]
    common = _common_dtype(*operands)
    if common is FLOAT32:
        return common, [_as_float32(operand) for operand in operands]
    return common, [astype(operand, common) if isinstance(operand, Tensor) else int(operand) for operand in operands]


def _compare(name: str, a: Any, b: Any) -> Tensor:
    common, operands = _operands(a, b)
    if not any(isinstance(operand, Tensor) for operand in operands):
        operands[0] = tensor(operands[0], dtype=common)
    return apply("compare", f"{name}_{common.wgsl}", *operands, dtype=BOOL)


def equal(a: Any, b: Any) -> Tensor:
    """Return a bool tensor that is true where a == b, which are broadcast. NaN equals nothing; 0 equals -0.

    Tensors of different types are compared as float32 if one is, and bools as integers; a number that an integer type
    cannot hold is compared as float32.

    Raises:
        UnsupportedError: one is int32 and the other uint32.

    Example:
        >>> import optirs_web as ow
        >>> (ow.tensor([1, 2, 3], device="cpu") == 2).tolist()
        [False, True, False]
    """
    return _compare("equal", a, b)


def not_equal(a: Any, b: Any) -> Tensor:
    """Return where a != b; NaN is unequal to everything. See `equal`.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 5.0], device="cpu"), ow.tensor([2.0, 4.0], device="cpu")
        >>> ow.ops.not_equal(x, y).tolist()
        [True, True]
    """
    return _compare("not_equal", a, b)


def less(a: Any, b: Any) -> Tensor:
    """Return where a < b; false where one is NaN. See `equal`.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 5.0], device="cpu"), ow.tensor([2.0, 4.0], device="cpu")
        >>> ow.ops.less(x, y).tolist()
        [True, False]
    """
    return _compare("less", a, b)


def less_equal(a: Any, b: Any) -> Tensor:
    """Return where a <= b; false where one is NaN. See `equal`.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 5.0], device="cpu"), ow.tensor([2.0, 4.0], device="cpu")
        >>> ow.ops.less_equal(x, y).tolist()
        [True, False]
    """
    return _compare("less_equal", a, b)


def greater(a: Any, b: Any) -> Tensor:
    """Return where a > b; false where one is NaN. See `equal`.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 5.0], device="cpu"), ow.tensor([2.0, 4.0], device="cpu")
        >>> ow.ops.greater(x, y).tolist()
        [False, True]
    """
    return _compare("less", b, a)


def greater_equal(a: Any, b: Any) -> Tensor:
    """Return where a >= b; false where one is NaN. See `equal`.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 5.0], device="cpu"), ow.tensor([2.0, 4.0], device="cpu")
        >>> ow.ops.greater_equal(x, y).tolist()
        [False, True]
    """
    return _compare("less_equal", b, a)


def _logical(name: str, *values: Any) -> Tensor:
    device = next((value.device for value in values if isinstance(value, Tensor)), None)
    as_tensors = [value if isinstance(value, Tensor) else tensor(value, device=device) for value in values]
    return apply("logical", name, *(astype(operand, BOOL) for operand in as_tensors), dtype=BOOL)


def logical_and(a: Any, b: Any) -> Tensor:
    """Return where both are true, which are broadcast; numbers other than 0 are true, and NaN is.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([True, True], device="cpu"), ow.tensor([True, False], device="cpu")
        >>> ow.ops.logical_and(x, y).tolist()
        [True, False]
    """
    return _logical("logical_and", a, b)


def logical_or(a: Any, b: Any) -> Tensor:
    """Return where at least one is true. See `logical_and`.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([True, True], device="cpu"), ow.tensor([True, False], device="cpu")
        >>> ow.ops.logical_or(x, y).tolist()
        [True, True]
    """
    return _logical("logical_or", a, b)


def logical_xor(a: Any, b: Any) -> Tensor:
    """Return where one is true and the other is not. See `logical_and`.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([True, True], device="cpu"), ow.tensor([True, False], device="cpu")
        >>> ow.ops.logical_xor(x, y).tolist()
        [False, True]
    """
    return _logical("logical_xor", a, b)


def logical_not(a: Any) -> Tensor:
    """Return where it is false. See `logical_and`.

    Example:
        >>> import optirs_web as ow
        >>> ow.ops.logical_not(ow.tensor([True, False], device="cpu")).tolist()
        [False, True]
    """
    return _logical("logical_not", a)


def _classify(name: str, x: Tensor) -> Tensor:
    need_float32(name, x)
    return apply("classify", name, x, dtype=BOOL)


def isnan(x: Tensor) -> Tensor:
    """Return where a float32 tensor is NaN.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([1.0, float("inf"), float("nan")], device="cpu")
        >>> ow.ops.isnan(x).tolist()
        [False, False, True]
    """
    return _classify("isnan", x)


def isinf(x: Tensor) -> Tensor:
    """Return where a float32 tensor is infinite.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([1.0, float("inf"), float("nan")], device="cpu")
        >>> ow.ops.isinf(x).tolist()
        [False, True, False]
    """
    return _classify("isinf", x)


def isfinite(x: Tensor) -> Tensor:
    """Return where a float32 tensor is neither infinite nor NaN.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([1.0, float("inf"), float("nan")], device="cpu")
        >>> ow.ops.isfinite(x).tolist()
        [True, False, False]
    """
    return _classify("isfinite", x)


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """`a` where the condition holds, elsewhere `b`; all three broadcast.

    Gradients: g where each was taken, 0 elsewhere, even where the other operand is NaN or infinite.

    Args:
        condition: a bool tensor.
        a: a tensor, or a number.
        b: likewise; see `equal` for tensors of different types.

    Raises:
        UnsupportedError: the condition is not of bools.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([-1.0, 2.0], device="cpu")
        >>> ow.where(x > 0, x, 0.0).tolist()
        [0.0, 2.0]
    """
    if not isinstance(condition, Tensor):
        device = next((value.device for value in (a, b) if isinstance(value, Tensor)), None)
        condition = tensor(condition, device=device)
    if condition.dtype is not BOOL:
        raise UnsupportedError(f"where needs a condition of bools, as x > 0 or x.astype('bool'), not {condition!r}")
    common, (a, b) = _operands(a, b)
    result = apply("where", f"where_{common.wgsl}", condition, a, b, dtype=common)
    if common is not FLOAT32:
        return result
    return record(
        result,
        (a, lambda g, _: sum_to(where(condition, g, 0.0), shape_of(a))),
        (b, lambda g, _: sum_to(where(condition, 0.0, g), shape_of(b))),
    )
