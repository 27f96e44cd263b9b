"""Normalization over the last axes of each example, and over a batch."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence

from ..autograd import no_grad, record
from ..errors import ShapeError
from ..launch import contiguous, need_float32, need_one_device, write_into
from ..limits import fits, in_parts, narrowed, part_along
from ..runtime.dtypes import FLOAT32
from ..tensor_class import Tensor, empty
from .arithmetic import add, mean as mean_of, multiply, subtract
from .composed import once, record_composed
from .reduce import broadcast_to, sum
from .row_kernels import LAYER_NORM_AFFINE_GRAD, launch_rows, launch_sums, layer_norm_form, layer_norm_grad_form
from .shape import reshape
from .unary import rsqrt

__all__ = ["batch_norm", "layer_norm"]

_SEGMENT = 64
"""Rows over which the gradient of a weight is added up at once."""


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) weight + bias over the last axes (Ba et al. 2016, arXiv:1607.06450).

    The variance is the biased one. It takes one dispatch forward and one for the gradient of `x`; the gradients of
    weight and bias take one to three together, by the number of rows. Two numbers for each row are kept for them.

    Args:
        x: (..., *normalized_shape), float32.
        normalized_shape: the lengths of the last axes; an int for one.
        weight: of that shape, or None.
        bias: of that shape, or None.
        eps: added to the variance.

    Raises:
        ShapeError: the last axes of `x`, weight or bias have other lengths, or the tensors are on different devices.
        UnsupportedError: a tensor is not float32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web.ops import layer_norm
        >>> layer_norm(ow.tensor([[1.0, 3.0]], device="cpu"), 2, eps=0.0).tolist()
        [[-1.0, 1.0]]
    """
    axes = normalized_shape if isinstance(normalized_shape, Iterable) else (normalized_shape,)
    shape = tuple(map(operator.index, axes))
    affine = [parameter for parameter in (weight, bias) if parameter is not None]
    need_float32("layer_norm", x, *affine)
    need_one_device("layer_norm", x, *affine)
    if not shape or x.shape[-len(shape) :] != shape or any(parameter.shape != shape for parameter in affine):
        shapes = " and ".join(str(operand.shape) for operand in [x, *affine])
        raise ShapeError(f"layer_norm over the last axes {shape} of tensors of shape {shapes}")
    if x.size == 0:
        return _affine(x, weight, bias)
    if 2 * FLOAT32.nbytes(math.prod(shape)) > x.device.capabilities.max_binding_bytes:  # a row does not fit a binding
        return _affine(_normalized(x, tuple(range(-len(shape), 0)), eps)[0], weight, bias)
    return _layer_norm(x, weight, bias, len(shape), eps)


def _layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, rank: int, eps: float) -> Tensor:
    columns = math.prod(x.shape[-rank:])
    rows = x.size // columns
    result = empty(x.shape, FLOAT32, x.device)
    mean, scale = (empty((rows,), FLOAT32, x.device) for _ in range(2))
    source = contiguous(x.detach())  # for the gradients too
    affine = [parameter for parameter in (weight, bias) if parameter is not None]
    form = layer_norm_form(weight is not None, bias is not None)

    def run(results: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
        launch_rows(form, results, [*operands, *affine], (results[0].size, columns, 1), (eps,))

    in_parts([mean, scale, _matrix(result, rows)], [_matrix(source, rows)], 1, run)
    statistics = mean, scale
    affine_gradients = once(lambda g, _: _gradients_of_affine(_matrix(g, rows), _matrix(source, rows), *statistics))
    return record(
        result,
        (x, lambda g, _: _gradient_of_input(g, x, source, weight, statistics, rank, eps)),
        (weight, lambda g, y: _gradient_of_weight(affine_gradients(g, y)[0], g, x, rank, eps)),
        (bias, lambda g, y: _gradient_of_bias(affine_gradients(g, y)[1], g, x.shape[-rank:])),
    )


def _matrix(x: Tensor, rows: int) -> Tensor:
    return Tensor(x.view, (rows, x.size // rows), x.dtype)


def _gradient_of_input(
    g: Tensor, x: Tensor, source: Tensor, weight: Tensor | None, statistics: Sequence[Tensor], rank: int, eps: float
) -> Tensor:
    rows, columns = statistics[0].shape[0], math.prod(x.shape[-rank:])
    result = empty(x.shape, FLOAT32, x.device)
    weights = [] if weight is None else [weight]
    form = layer_norm_grad_form(weight is not None)

    def run(results: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
        grads, values, *of_rows = operands
        launch_rows(form, results, [grads, values, *weights, *of_rows], (results[0].shape[0], columns, 1))

    in_parts([_matrix(result, rows)], [_matrix(g, rows), _matrix(source, rows), *statistics], 1, run)

    def formula(g: Tensor, x: Tensor, weight: Tensor | None = None) -> Tensor:
        axes = tuple(range(-rank, 0))
        normalized, scale = _normalized(x, axes, eps)
        h = g if weight is None else multiply(g, weight)
        along = multiply(normalized, mean_of(multiply(h, normalized), axes, keepdims=True))
        return multiply(scale, subtract(subtract(h, mean_of(h, axes, keepdims=True)), along))

    return record_composed(result, formula, g, x, *([] if weight is None else [weight]))


def _gradients_of_affine(g: Tensor, x: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of the weight and of the bias, (columns,) each. Leaves no history."""
    rows, columns = g.shape
    operands = g, x, mean, scale
    if rows > 1 and not fits(*(operand.strided.view for operand in operands)):
        middle = max(1, rows // 2 // _SEGMENT * _SEGMENT)
        first, second = (
            [narrowed(part_along(operand, 0, *at)) for operand in operands] for at in ((0, middle), (middle, rows))
        )
        of_first, of_second = _gradients_of_affine(*first), _gradients_of_affine(*second)
        return add(of_first[0], of_second[0]), add(of_first[1], of_second[1])
    results = empty((columns,), FLOAT32, g.device), empty((columns,), FLOAT32, g.device)
    launch_sums(LAYER_NORM_AFFINE_GRAD, results, operands, (1, rows, columns), _SEGMENT)
    return results


def _gradient_of_weight(result: Tensor, g: Tensor, x: Tensor, rank: int, eps: float) -> Tensor:
    def formula(g: Tensor, x: Tensor) -> Tensor:
        normalized, _ = _normalized(x, tuple(range(-rank, 0)), eps)
        return sum(multiply(g, normalized), tuple(range(x.ndim - rank)))

    return record_composed(reshape(result, x.shape[-rank:]), formula, g, x)


def _gradient_of_bias(result: Tensor, g: Tensor, shape: tuple[int, ...]) -> Tensor:
    shape_of_g = g.shape
    return record(reshape(result, shape), (g, lambda h, _: broadcast_to(h, shape_of_g)))


def _normalized(x: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """Return (x - mean) scale and scale = 1 / sqrt(variance + eps), by differentiable operations."""
    centered = subtract(x, mean_of(x, axes, keepdims=True))
    scale = rsqrt(add(mean_of(multiply(centered, centered), axes, keepdims=True), eps))
    return multiply(centered, scale), scale


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    scaled = x if weight is None else multiply(x, weight)
    return scaled if bias is None else add(scaled, bias)


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel, (x - mean) / sqrt(variance + eps) weight + bias (Ioffe and Szegedy 2015, arXiv:1502.03167).

    In training mean and (biased) variance are those of the batch, and the running ones move towards them: running +=
    momentum (batch - running), with the unbiased variance, as in torch. They change in place on the device, also in a
    compiled step. Otherwise, the running ones normalize.

    Args:
        x: (n, channels, ...), float32.
        running_mean: (channels,), or None where the batch's are always used.
        running_var: (channels,), or None.
        weight: (channels,), or None.
        bias: (channels,), or None.
        training: use the statistics of the batch.
        momentum: of the running statistics.
        eps: added to the variance.

    Raises:
        ShapeError: the shapes do not fit, there is one value for a channel in training, or the tensors are on
            different devices.
        UnsupportedError: a tensor is not float32.
        ValueError: there are no running statistics, and it is not training.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web.ops import batch_norm
        >>> x, running = ow.tensor([[1.0], [3.0]], device="cpu"), ow.zeros((1,), device="cpu")
        >>> batch_norm(x, running, ow.ones((1,), device="cpu"), training=True, eps=0.0).tolist(), running.tolist()
        ([[-1.0], [1.0]], [0.20000000298023224])
    """
    parameters = [parameter for parameter in (running_mean, running_var, weight, bias) if parameter is not None]
    need_float32("batch_norm", x, *parameters)
    need_one_device("batch_norm", x, *parameters)
    if x.ndim < 2 or any(parameter.shape != x.shape[1:2] for parameter in parameters):
        shapes = ", ".join(str(operand.shape) for operand in [x, *parameters])
        raise ShapeError(f"batch_norm needs (n, channels, ...) and tensors of (channels,), not {shapes}")
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    scale, shift = (None if parameter is None else reshape(parameter, shape) for parameter in (weight, bias))
    if training:
        return _affine(_normalized_by_batch(x, running_mean, running_var, momentum, eps), scale, shift)
    if running_mean is None or running_var is None:
        raise ValueError("batch_norm outside of training needs running_mean and running_var")
    factor = rsqrt(add(reshape(running_var, shape), eps))
    if scale is not None:
        factor = multiply(factor, scale)
    return _affine(subtract(x, reshape(running_mean, shape)), factor, shift)


def _normalized_by_batch(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float, eps: float
) -> Tensor:
    axes = (0, *range(2, x.ndim))
    count = math.prod(x.shape[index] for index in axes)
    if count < 2:
        raise ShapeError(f"batch_norm in training needs more than one value for each channel, not {x.shape}")
    average = mean_of(x, axes, keepdims=True)
    centered = subtract(x, average)
    variance = mean_of(multiply(centered, centered), axes, keepdims=True)
    with no_grad():
        _move_towards(running_mean, average, momentum)
        _move_towards(running_var, multiply(variance, count / (count - 1)), momentum)
    return multiply(centered, rsqrt(add(variance, eps)))


def _move_towards(running: Tensor | None, new: Tensor, momentum: float) -> None:
    """Update running statistics in place: running += momentum (new - running)."""
    if running is not None:
        kept = multiply(running, 1.0 - momentum)
        write_into(running, add(kept, multiply(reshape(new, running.shape), momentum)))
