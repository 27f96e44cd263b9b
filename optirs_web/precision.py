"""Mixed precision: the types of each operation's operands and result.

Arithmetic is float32 in every kernel: float16 and bfloat16 elements become float32 where a kernel reads them, and are
rounded once where it writes them. So sums are float32 on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .autograd import grad_enabled
from .errors import UnsupportedError
from .ops import calls
from .ops.calls import Autocast, autocast as innermost, autocast_to
from .runtime.dtypes import FLOAT32, DType, DTypeLike, dtype as dtype_of
from .runtime.modes import Block
from .runtime.program import Program
from .tensor_class import Parameter, Tensor

__all__ = ["autocast"]

PRODUCTS = frozenset(["conv1d", "conv2d", "conv_transpose2d", "linear", "matmul", "scaled_dot_product_attention"])
"""Operations whose operands and results are of 16 bits under autocast."""

IN_FLOAT32 = frozenset([
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "exp", "expm1", "huber_loss",
    "kl_div", "l1_loss", "layer_norm", "log", "log1p", "log_softmax", "logsumexp", "mean", "mse_loss", "nll_loss",
    "power", "reciprocal", "rsqrt", "smooth_l1_loss", "softmax", "softplus", "std", "sum", "var",
])  # fmt: skip
"""Operations whose results are float32 under autocast: torch's list for GPUs, and `logsumexp`, `mean`, `std`, `var`."""

_READING = frozenset(["layer_norm", "log_softmax", "mean", "softmax", "sum"])
"""Those of `IN_FLOAT32` whose kernels read tensors of 16 bits; operands of the others are converted to float32."""

_OF_ANY_TYPE = frozenset([
    "abs", "add", "add_into", "astype", "broadcast_to", "chunk", "clip", "clone", "concat", "conv1d", "conv2d",
    "conv_transpose2d", "cos", "divide", "dropout", "embedding", "equal", "erf", "exp", "expm1", "flatten", "gather",
    "gelu", "getitem", "greater", "greater_equal", "in_order", "isfinite", "isinf", "isnan", "leaky_relu", "less",
    "less_equal", "linear", "log", "log1p", "matmul", "maximum", "minimum", "multiply", "negate", "not_equal",
    "permute", "reciprocal", "relu", "reshape", "rsqrt", "scaled_dot_product_attention", "sigmoid", "sign", "silu",
    "sin", "split", "sqrt", "square", "squeeze", "stack", "subtract", "take", "tanh", "to_device", "transpose",
    "unsqueeze",
])  # fmt: skip
"""Operations that give 16 bits where all float operands have them. Others compute in float32, and are rounded."""

_TYPE_OF_FIRST_OPERAND = frozenset(["batch_norm"])
"""Operations whose result has the type of the first operand, for weights of any type."""


class _Cast(NamedTuple):
    """A parameter in 16 bits, and the state for which it is valid: version, replays so far, history, and recording."""

    parameter: Parameter
    state: tuple[int, int, bool, Program | None]
    tensor: Tensor


class autocast(Block["Autocast | None"]):
    """Products in 16 bits, as `torch.autocast`: a context manager, or a decorator of a function.

    It applies to its own thread or asyncio task alone.

    Within it, the types of operations are:

    - Products (``@``, `linear`, convolutions, attention) round float32 operands to `dtype`, accumulate in float32, and
      their results are tensors of `dtype`: half the memory, and half the bytes moved.
    - Softmax, normalization over examples, losses, sums, means, exp, log, powers and the like give float32.
    - Others give 16 bits if all float operands have 16 bits, otherwise float32.

    Parameters stay float32. Each is rounded once within the outermost context, and its gradient is float32. As with
    torch, `backward` is best called outside; gradients have the types of their tensors, wherever it is called. In
    float16 use `optim.GradScaler`: gradients below 6e-8 are 0 there.

    Contexts may be nested, and the innermost one applies. A compiled step may have one inside, or be called in one.

    Args:
        dtype: "bfloat16" or "float16".
        enabled: False has operations compute in the types of their operands, also within another context.
        cache_enabled: False rounds a parameter at each use.

    Raises:
        UnsupportedError: another dtype.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[1.0, 2.0], [3.0, 4.0]], device="cpu")
        >>> with ow.autocast("bfloat16"):
        ...     y = ow.ones((1, 2), device="cpu") @ w
        ...     loss = y.sum()
        >>> loss.backward()
        >>> y.dtype.name, loss.dtype.name, w.grad.dtype.name
        ('bfloat16', 'float32', 'float32')
    """

    def __init__(self, dtype: DTypeLike = "bfloat16", enabled: bool = True, cache_enabled: bool = True) -> None:
        self.dtype = dtype_of(dtype)
        if self.dtype.itemsize != 2:
            raise UnsupportedError(f"autocast computes products in 'bfloat16' or 'float16', not in {dtype!r}")
        self.enabled = enabled
        self.cache_enabled = cache_enabled
        super().__init__(innermost, None)

    def _value_within(self, outer: Autocast | None) -> Autocast:
        casts = {} if outer is None else outer.casts
        return Autocast(self.dtype if self.enabled else None, self.cache_enabled, casts)

    def __reduce__(self) -> tuple[Any, ...]:
        return autocast, (self.dtype.name, self.enabled, self.cache_enabled)

    def __enter__(self) -> autocast:
        super().__enter__()
        return self

    def _again(self) -> autocast:
        return autocast(self.dtype, self.enabled, self.cache_enabled)


def _chosen(function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Call an operation with operands of the types in the lists above."""
    target, name = autocast_to(), function.__name__
    types = {tensor.dtype.name for tensor in _floats((arguments, options))}
    if target is not None and name in PRODUCTS:
        return _as_type(_called(function, arguments, options, target), target)
    if types <= {"float32"}:
        return function(*arguments, **options)
    if target is not None and name in IN_FLOAT32:
        if name in _READING:
            return function(*arguments, **options)
        return _called(function, arguments, options, FLOAT32)
    if name == "astype":
        return function(*arguments, **options)
    result = (
        function(*arguments, **options) if _reads(name, len(types)) else _called(function, arguments, options, FLOAT32)
    )
    if name in _TYPE_OF_FIRST_OPERAND:
        return _as_type(result, arguments[0].dtype)
    return _as_type(result, dtype_of(types.pop())) if len(types) == 1 else result


def _reads(name: str, types: int) -> bool:
    """Return whether the operation's kernels read operands of that many types directly."""
    if name in _OF_ANY_TYPE:
        return types == 1 or name not in ("concat", "stack")
    return name in _READING or name in _TYPE_OF_FIRST_OPERAND


def _floats(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of floats in the arguments of an operation."""
    if isinstance(value, Tensor):
        if value.dtype.wgsl == "f32":
            yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _floats(item)


def _called(function: Callable[..., Any], arguments: Any, options: Mapping[str, Any], dtype: DType) -> Any:
    """Call an operation with operands converted to a type."""
    changed = {name: option if name == "attn_mask" else _as_type(option, dtype) for name, option in options.items()}
    is_attention = function.__name__ == "scaled_dot_product_attention"  # whose mask is not converted
    operand_count = 3 if is_attention else len(arguments)
    return function(*_as_type(tuple(arguments[:operand_count]), dtype), *arguments[operand_count:], **changed)


def _as_type(value: Any, dtype: DType) -> Any:
    """Return tensors of floats as this type, by themselves or in lists and tuples; other values unchanged."""
    if isinstance(value, Tensor):
        if value.dtype is dtype or value.dtype.wgsl != "f32":
            return value
        state = innermost.get()
        if state is None or not state.caches or not isinstance(value, Parameter):
            return value.astype(dtype)
        return _cast(value, dtype, state.casts)
    if isinstance(value, (list, tuple)):
        return type(value)(_as_type(item, dtype) for item in value)
    return value


def _cast(parameter: Parameter, dtype: DType, casts: dict[tuple[int, str], _Cast]) -> Tensor:
    """Return a parameter in 16 bits: the cached tensor, as long as it is of this value and this recording."""
    key = id(parameter), dtype.name
    device = parameter.device
    state = parameter._version, device.stats.replays, grad_enabled(), device.recording
    cached = casts.get(key)
    if cached is None or cached.state != state:
        casts[key] = cached = _Cast(parameter, state, parameter.astype(dtype))
        cached.tensor._keeps_edges = True
    return cached.tensor


calls.chosen = _chosen
