"""The operators and methods of `Tensor`, which call the operations of `ops`; see there for full descriptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runtime.device import Device
    from .runtime.dtypes import DType, DTypeLike
    from .tensors import Tensor

__all__ = ["TensorMethods", "call_operation"]

Axes = int | Sequence[int] | None


def call_operation(operation: str, *arguments: Any, **options: Any) -> Tensor:
    """Call an operation of `ops`, which imports this module and so cannot be imported at its top."""
    from . import ops

    result: Tensor = getattr(ops, operation)(*arguments, **options)
    return result


class _Conversions:
    """Methods with the names of Python's types, in a class of their own, as other signatures need these types."""

    def float(self) -> Tensor:
        """Convert to float32."""
        return call_operation("astype", self, "float32")

    def half(self) -> Tensor:
        """Convert to float16."""
        return call_operation("astype", self, "float16")

    def bfloat16(self) -> Tensor:
        """Convert to bfloat16."""
        return call_operation("astype", self, "bfloat16")

    def int(self) -> Tensor:
        """Convert to int32, truncated towards zero."""
        return call_operation("astype", self, "int32")

    def bool(self) -> Tensor:
        """Convert to bool: True where it is not 0."""
        return call_operation("astype", self, "bool")


class TensorMethods(_Conversions):
    """The operators and operations of `Tensor`. Binary ones broadcast as NumPy's do."""

    shape: tuple[int, ...]

    __array_ufunc__ = None  # so that NumPy leaves `array + tensor` to the tensor

    # Arithmetic.

    def __add__(self, other: Any) -> Tensor:
        return call_operation("add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Tensor:
        return call_operation("subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return call_operation("subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return call_operation("multiply", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Tensor:
        return call_operation("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return call_operation("divide", other, self)

    def __pow__(self, other: Any) -> Tensor:
        return call_operation("power", self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return call_operation("power", other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return call_operation("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return call_operation("matmul", other, self)

    def __neg__(self) -> Tensor:
        return call_operation("negate", self)

    def __pos__(self) -> Tensor:
        return call_operation("clone", self)

    def __abs__(self) -> Tensor:
        return call_operation("abs", self)

    # Comparisons and logic, element by element. == with objects that are no numbers or arrays, as None, is False.

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return call_operation("equal", self, other) if _is_comparable(other) else NotImplemented

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return call_operation("not_equal", self, other) if _is_comparable(other) else NotImplemented

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Tensor:
        return call_operation("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return call_operation("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return call_operation("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return call_operation("greater_equal", self, other)

    def __and__(self, other: Any) -> Tensor:
        return call_operation("logical_and", *_bools("&", self, other))

    __rand__ = __and__

    def __or__(self, other: Any) -> Tensor:
        return call_operation("logical_or", *_bools("|", self, other))

    __ror__ = __or__

    def __xor__(self, other: Any) -> Tensor:
        return call_operation("logical_xor", *_bools("^", self, other))

    __rxor__ = __xor__

    def __invert__(self) -> Tensor:
        return call_operation("logical_not", *_bools("~", self))

    def isnan(self) -> Tensor:
        """Where it is NaN."""
        return call_operation("isnan", self)

    def isinf(self) -> Tensor:
        """Where it is infinite."""
        return call_operation("isinf", self)

    def isfinite(self) -> Tensor:
        """Where it is neither infinite nor NaN."""
        return call_operation("isfinite", self)

    # Functions of each element.

    def abs(self) -> Tensor:
        """The magnitude."""
        return call_operation("abs", self)

    def sign(self) -> Tensor:
        """1, 0 or -1."""
        return call_operation("sign", self)

    def exp(self) -> Tensor:
        """The exponential."""
        return call_operation("exp", self)

    def expm1(self) -> Tensor:
        """The exponential less 1."""
        return call_operation("expm1", self)

    def log(self) -> Tensor:
        """The natural logarithm."""
        return call_operation("log", self)

    def log1p(self) -> Tensor:
        """The logarithm of 1 + x."""
        return call_operation("log1p", self)

    def sqrt(self) -> Tensor:
        """The square root."""
        return call_operation("sqrt", self)

    def rsqrt(self) -> Tensor:
        """One over the square root."""
        return call_operation("rsqrt", self)

    def square(self) -> Tensor:
        """The square."""
        return call_operation("square", self)

    def reciprocal(self) -> Tensor:
        """One over each element."""
        return call_operation("reciprocal", self)

    def pow(self, exponent: Any) -> Tensor:
        """Each element to a power."""
        return call_operation("power", self, exponent)

    def sin(self) -> Tensor:
        """The sine."""
        return call_operation("sin", self)

    def cos(self) -> Tensor:
        """The cosine."""
        return call_operation("cos", self)

    def tanh(self) -> Tensor:
        """The hyperbolic tangent."""
        return call_operation("tanh", self)

    def erf(self) -> Tensor:
        """The error function."""
        return call_operation("erf", self)

    def sigmoid(self) -> Tensor:
        """The logistic function."""
        return call_operation("sigmoid", self)

    def relu(self) -> Tensor:
        """The larger of each element and 0."""
        return call_operation("relu", self)

    def gelu(self, approximate: str = "none") -> Tensor:
        """The Gaussian error linear unit."""
        return call_operation("gelu", self, approximate)

    def silu(self) -> Tensor:
        """Each element times its logistic function."""
        return call_operation("silu", self)

    def clip(self, min: Any = None, max: Any = None) -> Tensor:
        """Each element clipped to two bounds."""
        return call_operation("clip", self, min, max)

    clamp = clip

    def softmax(self, axis: int | None = None, *, dim: int | None = None) -> Tensor:
        """The softmax along an axis, the last by default."""
        return call_operation("softmax", self, axis, dim=dim)

    def log_softmax(self, axis: int | None = None, *, dim: int | None = None) -> Tensor:
        """The logarithm of the softmax along an axis, the last by default."""
        return call_operation("log_softmax", self, axis, dim=dim)

    # Reductions: over an axis, several, or all. `dim` and `keepdim` are torch's names of `axis` and `keepdims`.

    def sum(
        self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
    ) -> Tensor:
        """The sum."""
        return call_operation("sum", self, axis, keepdims, dim=dim, keepdim=keepdim)

    def mean(
        self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
    ) -> Tensor:
        """The mean."""
        return call_operation("mean", self, axis, keepdims, dim=dim, keepdim=keepdim)

    def var(
        self, axis: Axes = None, keepdims: bool = False, correction: float = 1, *, dim: Axes = None,
        keepdim: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """The variance, over the number of elements less `correction`."""
        return call_operation("var", self, axis, keepdims, correction, dim=dim, keepdim=keepdim)

    def std(
        self, axis: Axes = None, keepdims: bool = False, correction: float = 1, *, dim: Axes = None,
        keepdim: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """The standard deviation, the square root of the variance."""
        return call_operation("std", self, axis, keepdims, correction, dim=dim, keepdim=keepdim)

    def max(
        self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
    ) -> Tensor:
        """The largest element: the value alone."""
        return call_operation("max", self, axis, keepdims, dim=dim, keepdim=keepdim)

    def min(
        self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
    ) -> Tensor:
        """The smallest element: the value alone."""
        return call_operation("min", self, axis, keepdims, dim=dim, keepdim=keepdim)

    def argmax(
        self, axis: int | None = None, keepdims: bool = False, *, dim: int | None = None, keepdim: bool | None = None
    ) -> Tensor:
        """The index of the largest element, as int32."""
        return call_operation("argmax", self, axis, keepdims, dim=dim, keepdim=keepdim)

    def argmin(
        self, axis: int | None = None, keepdims: bool = False, *, dim: int | None = None, keepdim: bool | None = None
    ) -> Tensor:
        """The index of the smallest element, as int32."""
        return call_operation("argmin", self, axis, keepdims, dim=dim, keepdim=keepdim)

    def logsumexp(
        self, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
    ) -> Tensor:
        """The logarithm of the sum of the exponentials."""
        return call_operation("logsumexp", self, axis, keepdims, dim=dim, keepdim=keepdim)

    # Shapes, and parts.

    def __getitem__(self, index: Any) -> Tensor:
        return call_operation("getitem", self, index)

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("a tensor without axes cannot be iterated over")
        return (self[number] for number in range(self.shape[0]))

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """A tensor of another shape with these elements; one dimension may be -1. No copy if they are contiguous."""
        return call_operation("reshape", self, _one_sequence(shape))

    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        """A tensor with the axes from `start` to `end` merged into one."""
        return call_operation("flatten", self, start, end)

    def unsqueeze(self, axis: int) -> Tensor:
        """A view with a new axis of length 1."""
        return call_operation("unsqueeze", self, axis)

    def squeeze(self, axis: int | tuple[int, ...] | None = None) -> Tensor:
        """A view without axes of length 1."""
        return call_operation("squeeze", self, axis)

    def transpose(self, first: int, second: int) -> Tensor:
        """A view with two axes exchanged."""
        return call_operation("transpose", self, first, second)

    def permute(self, *axes: int | Sequence[int]) -> Tensor:
        """A view with the axes in another order."""
        return call_operation("permute", self, _one_sequence(axes))

    @property
    def T(self) -> Tensor:
        """A view with the axes in reverse order."""
        return call_operation("permute", self, tuple(reversed(range(len(self.shape)))))

    @property
    def mT(self) -> Tensor:
        """A view with the last two axes exchanged: each matrix transposed."""
        return call_operation("transpose", self, -2, -1)

    # Copies.

    def clone(self) -> Tensor:
        """A copy in memory of its own; gradients pass through."""
        return call_operation("clone", self)

    def contiguous(self) -> Tensor:
        """The tensor, or a copy if it is not contiguous; gradients pass through."""
        return call_operation("in_order", self)

    def astype(self, dtype: DTypeLike) -> Tensor:
        """The values as another type; the tensor itself if it has that type."""
        return call_operation("astype", self, dtype)

    def to(self, target: str | Device | DType | type) -> Tensor:
        """A copy on another device, or of another type; the tensor itself if nothing changes. Gradients pass through.

        Args:
            target: what `optirs_web.device` takes, or "float32", "float16", "bfloat16", "int32", "uint32", "bool",
                or NumPy's or Python's type.
        """
        from .runtime.dtypes import DTYPES, DType

        is_type = isinstance(target, (DType, type)) or target in (*DTYPES, "float16", "bfloat16")
        return call_operation("astype" if is_type else "to_device", self, target)

    def cpu(self) -> Tensor:
        """A copy on the device `cpu`; the tensor itself if it is there."""
        return call_operation("to_device", self, "cpu")


def _is_comparable(other: object) -> bool:
    return isinstance(other, (TensorMethods, bool, int, float, list, tuple)) or hasattr(other, "__array__")


def _bools(operator: str, *operands: Any) -> tuple[Any, ...]:
    """Return the operands of logic, after checking that tensors among them are of bools.

    Raises:
        UnsupportedError: one is not.
    """
    from .errors import UnsupportedError

    for operand in operands:
        if isinstance(operand, TensorMethods) and operand.dtype.name != "bool":  # type: ignore[attr-defined]
            raise UnsupportedError(f"{operator} is for bools, as in (x > 0) & (x < 1), not for {operand!r}")
    return operands


def _one_sequence(values: tuple[int | Sequence[int], ...]) -> Any:
    """Return ints that are passed as separate arguments, or as one sequence."""
    return values[0] if len(values) == 1 and not isinstance(values[0], int) else values
