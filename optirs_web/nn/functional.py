"""Functions with torch.nn.functional's names and order of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import ops
from ..debugging import check_indices
from ..errors import ShapeError, UnsupportedError
from ..ops import (
    adaptive_avg_pool2d,
    batch_norm,
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    conv1d,
    conv2d,
    conv_transpose2d,
    cross_entropy,
    fold,
    gelu,
    huber_loss,
    kl_div,
    l1_loss,
    layer_norm,
    log_softmax,
    max_pool2d,
    mse_loss,
    nll_loss,
    scaled_dot_product_attention,
    sigmoid,
    smooth_l1_loss,
    softmax,
    softplus,
    tanh,
    unfold,
)
from ..ops.calls import operation
from ..ops.creation import arange
from ..tensors import Tensor, tensor

__all__ = [
    "adaptive_avg_pool2d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "conv1d",
    "conv2d",
    "conv_transpose2d",
    "cross_entropy",
    "dropout",
    "embedding",
    "fold",
    "gelu",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "max_pool2d",
    "mse_loss",
    "nll_loss",
    "one_hot",
    "pad",
    "relu",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "tanh",
    "unfold",
]


@operation
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product with a weight, x Wᵀ + b.

    Args:
        input: (..., in).
        weight: (out, in), or (in,) for one output without an axis.
        bias: (out,), or of no axes.

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> import optirs_web as ow
        >>> x, w = ow.ones((5, 3), device="cpu"), ow.ones((2, 3), device="cpu")
        >>> ow.nn.functional.linear(x, w).shape
        (5, 2)
    """
    product: Tensor = input @ (weight.T if weight.ndim > 1 else weight)
    return product if bias is None else product + bias


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """The larger of x and 0. Nothing is changed in place.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.functional.relu(ow.tensor([-2.0, 3.0], device="cpu")).tolist()
        [0.0, 3.0]
    """
    return ops.relu(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """The value above 0, `negative_slope` times it elsewhere. Nothing is changed in place.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.functional.leaky_relu(ow.tensor([-2.0, 3.0], device="cpu"), 0.5).tolist()
        [-1.0, 3.0]
    """
    return ops.leaky_relu(input, negative_slope)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """The value times its sigmoid. Nothing is changed in place.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.nn.functional.silu(ow.tensor([-1.0, 1.0], device="cpu")).tolist()]
        [-0.2689, 0.7311]
    """
    return ops.silu(input)


def embedding(input: Any, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of a table (rows, ...) for int32 numbers of any shape; the row `padding_idx` gets no gradient.

    Example:
        >>> import optirs_web as ow
        >>> table = ow.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu")
        >>> ow.nn.functional.embedding(ow.tensor([1, 0], device="cpu"), table).tolist()
        [[3.0, 4.0], [1.0, 2.0]]
    """
    return ops.embedding(weight, input, padding_idx)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Elements left out with probability p, the others divided by 1 - p. Nothing is changed in place.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.ones((1000,), device="cpu")
        >>> y = ow.nn.functional.dropout(x, 0.5)
        >>> set(y.tolist()) == {0.0, 2.0}
        True
        >>> ow.nn.functional.dropout(x, 0.5, training=False).tolist() == x.tolist()
        True
    """
    return ops.dropout(input, p, training)


def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, *, count_include_pad: bool = True
) -> Tensor:
    """The mean value of each window of (n, channels, height, width); the windows are adjacent by default.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[[[1.0, 2.0], [3.0, 6.0]]]], device="cpu")
        >>> ow.nn.functional.avg_pool2d(x, 2).tolist()
        [[[[3.0]]]]
    """
    return ops.avg_pool2d(input, kernel_size, stride, padding, count_include_pad)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """The tensor with a border around its last axes.

    Args:
        input: of any dtype.
        pad: elements before and after: of the last axis, then of the one before it, and so on.
        mode: "constant"; there is no other yet.
        value: the value of the border.

    Raises:
        ShapeError: there are more pairs than axes, or a half of one.
        UnsupportedError: another mode.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.functional.pad(ow.ones((1, 2), device="cpu"), (1, 0)).tolist()
        [[0.0, 1.0, 1.0]]
    """
    if mode != "constant":
        raise UnsupportedError(f"pad in the mode '{mode}' is not supported; only 'constant' is")
    if len(pad) % 2 or len(pad) // 2 > input.ndim:
        raise ShapeError(f"pad takes two numbers for each of the last axes of {input.shape}, not {tuple(pad)}")
    pairs = [(before, after) for before, after in zip(pad[::2], pad[1::2], strict=True)]
    return ops.pad(input, [(0, 0)] * (input.ndim - len(pairs)) + pairs[::-1], value)


def one_hot(tensor: Any, num_classes: int) -> Tensor:
    """1 where the index along a new last axis is the class, 0 elsewhere, as float32, which products take.

    torch's gives integers and counts the classes itself; that would have to be read back from the device.

    Args:
        tensor: class numbers, int32, of any shape.
        num_classes: number of classes. A number out of range gives zeros; in a block of `optirs_web.debug` it is an
            error.

    Returns:
        (*shape, num_classes).

    Raises:
        ShapeError: in a block of `optirs_web.debug`, a number is no class.
        UnsupportedError: the numbers are not int32.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.functional.one_hot(ow.tensor([2, 0], device="cpu"), 3).tolist()
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    numbers = _as_tensor(tensor)
    if numbers.dtype != "int32":
        raise UnsupportedError(f"one_hot needs int32 class numbers, not {numbers.dtype}")
    check_indices("one_hot", numbers, num_classes, what="classes")
    is_class = ops.equal(numbers.reshape(*numbers.shape, 1), arange(num_classes, numbers.device))
    return ops.astype(is_class, "float32")


def _as_tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else tensor(value)
