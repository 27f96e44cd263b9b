"""Scaled dot-product attention: tiles of the scores at a time, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..autograd import pulled_back, record
from ..errors import ShapeError, UnsupportedError
from ..launch import broadcast_shapes, contiguous, float_type, need_float32, need_one_device
from ..limits import in_parts
from ..runtime.attention_tiles import attention_kernel, attention_tile, column_tiles_for
from ..runtime.buffer import View
from ..runtime.dtypes import BOOL, FLOAT32
from ..runtime.kernels import cooperative
from ..runtime.strides import collapse
from ..tensor_class import Tensor, empty
from .arithmetic import add, multiply
from .compare import astype, greater_equal, less_equal, logical_not, where
from .composed import once, record_composed
from .creation import arange, full
from .dropouts import dropout
from .linear import matmul
from .reduce import broadcast_to
from .shape import reshape, transpose
from .softmaxes import softmax

__all__ = ["scaled_dot_product_attention"]

_BATCH_AXES = 2
_MOST_SCORES = 16 << 20  # bytes
_LOWEST = -3.4028234663852886e38


class _Call(NamedTuple):
    """The arguments of an attention besides query, key and value. The mask has the shape of the scores."""

    mask: Tensor | None
    is_causal: bool
    scale: float


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(scale · query keyᵀ + mask) value, as torch.nn.functional.scaled_dot_product_attention.

    The scores of all pairs are never stored, neither here nor in the gradients (Dao et al. 2022, "FlashAttention",
    arXiv:2205.14135): 32 or 64 queries meet 32 keys at a time, and what is kept for the gradients is one number for
    each query. Permuted operands are read in place. The exceptions store the scores, (..., n, m) in float32:
    dropout, a float mask that requires a gradient, second derivatives, and software adapters, where two products and a
    softmax are several times as fast, as long as the scores take at most 16 MiB.

    Args:
        query: (..., n, d), float32; the axes before the last two are broadcast.
        key: (..., m, d), float32.
        value: (..., m, columns), float32.
        attn_mask: broadcasts to (..., n, m). Where a bool mask is False, a query does not see a key; a float32 one
            is added to the scores. A query that sees no key gets zeros.
        dropout_p: the share of weights that are set to 0, where it is not 0; the others are divided by 1 - dropout_p.
        is_causal: query number i sees the keys up to number i. Not together with a mask.
        scale: 1 / sqrt(d) by default.

    Returns:
        (..., n, columns).

    Raises:
        ShapeError: the shapes do not fit.
        UnsupportedError: an operand is not float32, the mask neither bool nor float32, or there is a mask although
            `is_causal` is set.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web.ops import scaled_dot_product_attention
        >>> q = ow.randn((2, 4, 10, 8), device="cpu", seed=0)
        >>> scaled_dot_product_attention(q, q, q, is_causal=True).shape
        (2, 4, 10, 8)
    """
    need_float32("scaled_dot_product_attention", query, key, value)
    need_one_device("scaled_dot_product_attention", query, key, value, *([] if attn_mask is None else [attn_mask]))
    batch = _checked(query, key, value)
    scores_shape = (*batch, query.shape[-2], key.shape[-2])
    mask = _checked_mask(attn_mask, is_causal, scores_shape)
    if scale is None:
        scale = 1.0 / math.sqrt(max(1, query.shape[-1]))
    query, key, value = (broadcast_to(operand, (*batch, *operand.shape[-2:])) for operand in (query, key, value))
    call = _Call(mask, is_causal, scale)
    if 0 in scores_shape or query.shape[-1] == 0 or value.shape[-1] == 0:
        return _nothing(query, key, value)
    stores_scores = dropout_p or (mask is not None and mask.requires_grad) or _favours_products(query, key, value)
    if stores_scores:
        return _formula(query, key, value, call, dropout_p)
    return _tiled(query, key, value, call)


def _favours_products(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Products of the whole matrices are faster than tiles, and memory for their scores is a small matter."""
    nbytes = FLOAT32.itemsize * math.prod(query.shape[:-1]) * key.shape[-2]
    is_float32 = all(operand.dtype is FLOAT32 for operand in (query, key, value))
    return query.device.capabilities.quads and is_float32 and nbytes <= _MOST_SCORES


def _checked(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    """Check the shapes of the operands and return the broadcast axes before the last two."""
    shapes = f"{query.shape}, {key.shape} and {value.shape}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError(f"attention needs query, key and value of two axes or more, not {shapes}")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(f"attention needs (..., n, d), (..., m, d) and (..., m, columns), not {shapes}")
    return broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])


def _checked_mask(mask: Tensor | None, is_causal: bool, shape: tuple[int, ...]) -> Tensor | None:
    if mask is None:
        return None
    if is_causal:
        raise UnsupportedError("attention takes attn_mask or is_causal, not both")
    if mask.dtype.itemsize < 4:
        mask = astype(mask, FLOAT32)
    if mask.dtype not in (BOOL, FLOAT32):
        raise UnsupportedError(f"attn_mask must be bool or float32, not {mask.dtype}")
    return broadcast_to(mask, shape)


def _nothing(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return the zeros that an attention without queries, keys or columns gives."""
    result = full((*query.shape[:-1], value.shape[-1]), 0.0, query.device)
    shapes = [(operand, operand.shape) for operand in (query, key, value)]
    return record(
        result, *((operand, lambda g, _, shape=shape: full(shape, 0.0, g.device)) for operand, shape in shapes)
    )


# Tiles.


def _tiled(query: Tensor, key: Tensor, value: Tensor, call: _Call) -> Tensor:
    shape = (*query.shape[:-1], value.shape[-1])
    result = empty(shape, float_type(query, key, value), query.device)
    log_sums = empty(shape[:-1], FLOAT32, query.device)

    def run(results: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
        query, key, value, *mask = operands
        part = _Dispatch(query, key, query, value, mask[0] if mask else None, True, True)
        part.run("attention", results[1], results[0], call)

    masks = [] if call.mask is None else [call.mask]
    in_parts([result, log_sums], [query, key, value, *masks], len(shape) - 2, run)
    sums = once(lambda g, y: _sums_of_queries(g, y, log_sums))
    return record(
        result,
        *(
            (operand, lambda g, y, number=number: _gradient(number, query, key, value, g, sums(g, y), call))
            for number, operand in enumerate((query, key, value))
        ),
    )


def _gradient(
    number: int, query: Tensor, key: Tensor, value: Tensor, g: Tensor, query_sums: Tensor, call: _Call
) -> Tensor:
    """The gradient of query, key or value. Its own gradients are those of the formula."""

    def run(results: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
        query, key, value, g, part_sums, *masks = operands
        mask = masks[0] if masks else None
        if number == 0:
            work = _Dispatch(query, key, g, value, mask, True, False)
        else:
            mask_transposed = None if mask is None else transpose(mask, -1, -2)
            work = _Dispatch(key, query, value, g, mask_transposed, False, number == 2)
        work.run("attention_grad", part_sums, results[0], call, 1.0 if number == 2 else call.scale)

    operand = (query, key, value)[number]
    result = empty(operand.shape, operand.dtype, query.device)
    masks = [] if call.mask is None else [call.mask]
    in_parts([result], [query, key, value, g, query_sums, *masks], result.ndim - 2, run)

    def formula(query: Tensor, key: Tensor, value: Tensor, g: Tensor) -> Tensor:
        return pulled_back(lambda q, k, v: _formula(q, k, v, call), (query, key, value), g)[number]

    return record_composed(result, formula, query, key, value, g)


def _sums_of_queries(g: Tensor, y: Tensor, log_sums: Tensor) -> Tensor:
    """Return (..., n, 2): for each query the logarithm of the sum of its weights, and the sum of g y over its row."""
    result = empty((*y.shape[:-1], 2), FLOAT32, y.device)

    def run(results: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
        g, y, log_sums = operands
        rows, columns = y.shape[-2:]
        inner, _, [(view, layout)] = _strided_batch(y.shape[:-2], [g])
        queries = log_sums.size
        y.device.dispatch(
            cooperative("attention_delta"),
            [view, y.view, log_sums.view, results[0].view],
            -(-queries // 8),
            (queries, rows, columns, inner, *layout),
        )

    in_parts([result], [g.detach(), y.detach(), log_sums], y.ndim - 1, run)
    return result


_StridedView = tuple[View, tuple[int, ...]]


def _strided_batch(batch: tuple[int, ...], matrices: Sequence[Tensor]) -> tuple[int, int, list[_StridedView]]:
    """Return matrices as batches of two axes: the length of the inner axis, the number of matrices, and their storage.

    The storage of each operand is its view, and then the offset of the first element and the strides along both axes
    of the batch, rows and columns, in elements.
    """
    storages = [matrix.strided for matrix in matrices]
    sizes, strides = collapse(batch, [storage.strides[:-2] for storage in storages])
    if len(sizes) > _BATCH_AXES:
        return _strided_batch(batch, [contiguous(matrix) for matrix in matrices])
    missing = (0,) * (_BATCH_AXES - len(sizes))
    steps = [
        (*missing, *batch_strides, *storage.strides[-2:])
        for batch_strides, storage in zip(strides, storages, strict=True)
    ]
    views = [(storage.view, (storage.start, *offsets)) for storage, offsets in zip(storages, steps, strict=True)]
    return sizes[-1], math.prod(sizes), views


class _Dispatch:
    """The operands of an attention kernel: rows, the rows that they meet, and the values of both.

    See shaders/lib/attention.wgsl.
    """

    def __init__(
        self,
        own: Tensor,
        other: Tensor,
        own_values: Tensor,
        other_values: Tensor,
        mask: Tensor | None,
        owns_queries: bool,
        adds_values: bool,
    ) -> None:
        matrices = [own, other, own_values, other_values] + ([] if mask is None else [mask])
        self.inner, self.products, self.operands = _strided_batch(own.shape[:-2], matrices)
        self.rows = own.shape[-2]
        self.sizes = (self.rows, other.shape[-2], own.shape[-1], other_values.shape[-1])
        self.by_vectors = _are_of_fours(self.operands[:4], self.sizes[2:])
        self.kind = 0 if mask is None else 1 if mask.dtype is BOOL else 2
        if mask is None:
            self.operands.append((self.operands[0][0]._replace(kind=""), (0,) * 5))
        self.owns_queries, self.adds_values = owns_queries, adds_values

    def run(self, name: str, query_sums: Tensor, result: Tensor, call: _Call, result_scale: float = 1.0) -> None:
        """Enqueue the kernel `name`, which reads or writes one or two numbers for each query, `query_sums`."""
        columns, capabilities = result.shape[-1], result.device.capabilities
        column_tiles = column_tiles_for(columns)
        tile = attention_tile(capabilities.tiles, self.rows, self.products, column_tiles)
        by_vectors = self.by_vectors and not result.view.kind
        kernel = attention_kernel(name, capabilities.tiles, tile, column_tiles, by_vectors=by_vectors)
        layouts = [number for _, layout in self.operands for number in layout]
        views = [*(view for view, _ in self.operands), result.view, query_sums.view]
        most = capabilities.max_workgroups
        for first_column in range(0, columns, 32 * column_tiles):
            for first_product in range(0, self.products, most):
                result.device.dispatch(
                    kernel,
                    views,
                    (-(-self.rows // tile.rows), min(most, self.products - first_product)),
                    (
                        *self.sizes, columns, first_column, call.is_causal, self.owns_queries, self.adds_values,
                        self.kind, call.scale, result_scale, first_product, self.inner, *layouts,
                    ),
                )  # fmt: skip


def _are_of_fours(matrices: Sequence[_StridedView], columns: Sequence[int]) -> bool:
    """Return whether a kernel may read float32 matrices of so many columns by vectors of four adjacent elements."""
    return not any(size % 4 for size in columns) and all(
        not view.kind and layout[-1] == 1 and not any(number % 4 for number in layout[:-1]) for view, layout in matrices
    )


# The formula.


def _formula(query: Tensor, key: Tensor, value: Tensor, call: _Call, dropout_p: float = 0.0) -> Tensor:
    """Compute the attention by differentiable operations, which store the scores."""
    scores = multiply(matmul(query, transpose(key, -1, -2)), call.scale)
    visible = _visible(call, scores)
    if call.mask is not None and call.mask.dtype is FLOAT32:
        scores = add(scores, where(visible, call.mask, 0.0))
    weights = softmax(scores if visible is None else where(visible, scores, _LOWEST))
    if visible is not None and not call.is_causal:  # a query may see no key
        weights = where(visible, weights, 0.0)
    return matmul(dropout(weights, dropout_p) if dropout_p else weights, value)


def _visible(call: _Call, scores: Tensor) -> Tensor | None:
    """Return a bool mask of the keys that each query sees; None if all."""
    if call.is_causal:
        queries, keys = (arange(length, scores.device) for length in scores.shape[-2:])
        return greater_equal(reshape(queries, (-1, 1)), keys)
    if call.mask is None or call.mask.dtype is BOOL:
        return call.mask
    return logical_not(less_equal(call.mask, _LOWEST))
