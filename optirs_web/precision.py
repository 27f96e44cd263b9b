"""Mixed precision: in which type each operation takes its operands, and which it gives.

Arithmetic is float32 in every kernel: elements of 16 bits become float32 where a kernel reads them, and what is to be
one is rounded once where it is written. So sums are float32 on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from . import ops
from .autograd import grad_enabled
from .errors import UnsupportedError
from .runtime.buffer import View
from .runtime.dtypes import FLOAT32, DType, DTypeLike, dtype as dtype_of
from .runtime.modes import Block
from .runtime.program import Program
from .tensors import Parameter, Tensor

__all__ = ["autocast", "of_halves"]

PRODUCTS = frozenset(["conv1d", "conv2d", "conv_transpose2d", "linear", "matmul", "scaled_dot_product_attention"])
"""Under autocast these take operands of 16 bits, and give such results."""

IN_FLOAT32 = frozenset([
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "exp", "expm1", "huber_loss",
    "kl_div", "l1_loss", "layer_norm", "log", "log1p", "log_softmax", "logsumexp", "mean", "mse_loss", "nll_loss",
    "power", "reciprocal", "rsqrt", "smooth_l1_loss", "softmax", "softplus", "std", "sum", "var",
])  # fmt: skip
"""Under autocast these give float32: torch's list for GPUs, and `logsumexp`, `mean`, `std` and `var`."""

_READING = frozenset(["layer_norm", "log_softmax", "mean", "softmax", "sum"])
"""Of these the kernels that read tensors of 16 bits themselves, and give float32; the others are given float32."""

_OF_ANY_TYPE = frozenset([
    "abs", "add", "add_into", "astype", "broadcast_to", "chunk", "clip", "clone", "concat", "conv1d", "conv2d",
    "conv_transpose2d", "cos", "divide", "dropout", "embedding", "equal", "erf", "exp", "expm1", "flatten", "gather",
    "gelu", "getitem", "greater", "greater_equal", "in_order", "isfinite", "isinf", "isnan", "leaky_relu", "less",
    "less_equal", "linear", "log", "log1p", "matmul", "maximum", "minimum", "multiply", "negate", "not_equal",
    "permute", "reciprocal", "relu", "reshape", "rsqrt", "scaled_dot_product_attention", "sigmoid", "sign", "silu",
    "sin", "split", "sqrt", "square", "squeeze", "stack", "subtract", "take", "tanh", "to_device", "transpose",
    "unsqueeze",
])  # fmt: skip
"""What gives 16 bits where all floats that it is given have those. Others compute in float32, and are rounded."""

_LIKE_THE_FIRST = frozenset(["batch_norm"])
"""What gives the type of its first operand, whatever its weights are."""


class _Cast(NamedTuple):
    """A parameter in 16 bits, and when it can stand for it: its version, replays so far, history, and the recording."""

    parameter: Parameter
    state: tuple[int, int, bool, Program | None]
    tensor: Tensor


class autocast(Block["ops.Autocast | None"]):
    """Products in 16 bits, as `torch.autocast`: a context manager, or a decorator of a function.

    It holds in its own thread or asyncio task alone.

    Inside it, operations choose the types that they compute in:

    - Products (``@``, `linear`, convolutions, attention) round float32 operands to `dtype`, add up in float32, and
      their results are tensors of `dtype`: half the memory, and half of what has to be moved.
    - Softmax, normalization over examples, losses, sums, means, exp, log, powers and their like give float32.
    - Others give 16 bits if all floats that they are given have those, otherwise float32.

    Parameters stay float32. Each is rounded once for the extent of the outermost context, and its gradient comes back
    as float32. As with torch, `backward` is best called outside; gradients have the types of what they are gradients
    of, wherever it is called. In float16 use `optim.GradScaler`: gradients below 6e-8 are 0 there.

    Contexts may be nested, and the innermost one holds. A compiled step may have one inside, or be called in one.

    Args:
        dtype: "bfloat16" or "float16".
        enabled: False has everything compute in the types that it is given, also within another context.
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
        super().__init__(ops.autocast, None)

    def _value_within(self, outer: ops.Autocast | None) -> ops.Autocast:
        casts = {} if outer is None else outer.casts
        return ops.Autocast(self.dtype if self.enabled else None, self.cache_enabled, casts)

    def __reduce__(self) -> tuple[Any, ...]:
        return autocast, (self.dtype.name, self.enabled, self.cache_enabled)

    def __enter__(self) -> autocast:
        super().__enter__()
        return self

    def _again(self) -> autocast:
        return autocast(self.dtype, self.enabled, self.cache_enabled)


def of_halves(view: View, dtype: DType) -> View:
    """The view as one of halves of words."""
    return View(view.buffer, view.offset, view.nbytes, dtype.name)


def _chosen(function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Call an operation in the types that the lists say."""
    target, name = ops.autocast_to(), function.__name__
    given = {one.dtype.name for one in _floats((arguments, options))}
    if target is not None and name in PRODUCTS:
        return _as_type(_called(function, arguments, options, target), target)
    if given <= {"float32"}:
        return function(*arguments, **options)
    if target is not None and name in IN_FLOAT32:
        if name in _READING:
            return function(*arguments, **options)
        return _called(function, arguments, options, FLOAT32)
    if name == "astype":
        return function(*arguments, **options)
    result = (
        function(*arguments, **options) if _reads(name, len(given)) else _called(function, arguments, options, FLOAT32)
    )
    if name in _LIKE_THE_FIRST:
        return _as_type(result, arguments[0].dtype)
    return _as_type(result, dtype_of(given.pop())) if len(given) == 1 else result


def _reads(name: str, types: int) -> bool:
    """The operation's kernels read operands of so many types themselves."""
    if name in _OF_ANY_TYPE:
        return types == 1 or name not in ("concat", "stack")
    return name in _READING or name in _LIKE_THE_FIRST


def _floats(value: Any) -> Iterator[Tensor]:
    """The tensors of floats in what an operation is given."""
    if isinstance(value, Tensor):
        if value.dtype.wgsl == "f32":
            yield value
    elif isinstance(value, (list, tuple, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _floats(one)


def _called(function: Callable[..., Any], arguments: Any, options: Mapping[str, Any], dtype: DType) -> Any:
    """Of operands of that type."""
    changed = {name: one if name == "attn_mask" else _as_type(one, dtype) for name, one in options.items()}
    kept = 3 if function.__name__ == "scaled_dot_product_attention" else len(arguments)  # a mask of floats stays
    return function(*_as_type(tuple(arguments[:kept]), dtype), *arguments[kept:], **changed)


def _as_type(value: Any, dtype: DType) -> Any:
    """Tensors of floats as this type, by themselves or in lists and tuples; other values as they are."""
    if isinstance(value, Tensor):
        if value.dtype is dtype or value.dtype.wgsl != "f32":
            return value
        state = ops.autocast.get()
        if state is None or not state.caches or not isinstance(value, Parameter):
            return value.astype(dtype)
        return _cast(value, dtype, state.casts)
    if isinstance(value, (list, tuple)):
        return type(value)(_as_type(one, dtype) for one in value)
    return value


def _cast(parameter: Parameter, dtype: DType, casts: dict[tuple[int, str], _Cast]) -> Tensor:
    """A parameter in 16 bits: what was made of it already, as long as it is of this value and this recording."""
    key = id(parameter), dtype.name
    device = parameter.device
    state = parameter._version, device.stats.replays, grad_enabled(), device.recording
    known = casts.get(key)
    if known is None or known.state != state:
        casts[key] = known = _Cast(parameter, state, parameter.astype(dtype))
        known.tensor._keeps_edges = True
    return known.tensor


ops.chosen = _chosen
