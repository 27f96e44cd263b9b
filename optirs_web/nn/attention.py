"""Multi-head attention, in torch's layout of weights."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..errors import ShapeError, UnsupportedError
from ..ops import less_equal, logical_and, logical_not, where, zeros
from ..ops.creation import arange
from ..runtime.device import Device
from ..runtime.dtypes import BOOL
from ..tensors import Parameter, Tensor, tensor
from . import functional as F, init
from .linear import Linear
from .module import Module

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of several heads, concat(head₁, ...) Wᵀ, as torch.nn.MultiheadAttention (Vaswani et al. 2017).

    Args:
        embed_dim: the length of queries and of the result.
        num_heads: each has embed_dim / num_heads of it.
        dropout: the share of weights that is left out while training.
        bias: of the four projections.
        kdim: the length of keys, where it is not `embed_dim`.
        vdim: that of values.
        batch_first: tensors are (n, length, features), not (length, n, features).
        device: what `optirs_web.device` takes.

    Attributes:
        in_proj_weight: (3 embed_dim, embed_dim), the rows of queries, keys and values, uniform by Glorot at first; or
            None.
        q_proj_weight, k_proj_weight, v_proj_weight: in place of it where `kdim` or `vdim` differ; or None.
        in_proj_bias: (3 embed_dim,), zeros at first; or None.
        out_proj: the last projection, a `Linear`.

    Raises:
        ShapeError: `num_heads` does not divide `embed_dim`.

    Example:
        >>> import optirs_web as ow
        >>> attention = ow.nn.MultiheadAttention(8, 2, batch_first=True, device="cpu")
        >>> x = ow.ones((3, 5, 8), device="cpu")
        >>> attention(x, x, x, need_weights=False)[0].shape, attention(x, x, x)[1].shape
        ((3, 5, 8), (3, 5, 5))
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: str | Device | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(f"{num_heads} heads do not divide embed_dim {embed_dim}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.batch_first = dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        is_packed = self.kdim == self.vdim == embed_dim
        self.in_proj_weight = Parameter(zeros((3 * embed_dim, embed_dim), device)) if is_packed else None
        for name, inputs in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            weight = None if is_packed else Parameter(zeros((embed_dim, inputs), device))
            self.register_parameter(f"{name}_proj_weight", weight)
        self.in_proj_bias = Parameter(zeros(3 * embed_dim, device)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights for the projections; the biases are zeros."""
        for name, param in self.named_parameters(recurse=False):
            if name.endswith("weight"):
                init.xavier_uniform_(param)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the attention of each head, and the projection of their concatenated results.

        Args:
            query: (l, n, embed_dim), or (n, l, embed_dim) if `batch_first`, or (l, embed_dim).
            key: (s, n, kdim), likewise.
            value: (s, n, vdim), likewise.
            key_padding_mask: (n, s), or (s,): where it is True a key is left out; a float one is added to the scores.
            need_weights: return the weights too. Without them the scores are never stored as a whole.
            attn_mask: (l, s) or (n · num_heads, l, s), as `key_padding_mask`.
            average_attn_weights: return their mean over the heads.
            is_causal: query number i sees the keys up to number i; an `attn_mask` passed with it is ignored, as it
                should be that mask.

        Returns:
            The result, of the shape of the query, and the weights, (n, l, s) or (n, heads, l, s), or None.

        Raises:
            ShapeError: the shapes do not fit.
            UnsupportedError: a mask is neither bool nor float32.
        """
        if query.ndim == 2:
            axis = 0 if self.batch_first else 1
            batch = [
                operand.reshape((*operand.shape[:axis], 1, *operand.shape[axis:])) for operand in (query, key, value)
            ]
            padding = None if key_padding_mask is None else _mask(key_padding_mask, query.device).reshape(1, -1)
            result, weights = self._attend(
                batch, query is key is value, padding, need_weights, attn_mask, average_attn_weights, is_causal
            )
            return result.reshape(query.shape), None if weights is None else weights.reshape(weights.shape[1:])
        return self._attend(
            [query, key, value], query is key is value, key_padding_mask, need_weights, attn_mask,
            average_attn_weights, is_causal,
        )  # fmt: skip

    def _attend(
        self,
        operands: list[Tensor],
        is_self: bool,
        key_padding_mask: Any,
        need_weights: bool,
        attn_mask: Any,
        average: bool,
        is_causal: bool,
    ) -> tuple[Tensor, Tensor | None]:
        heads = _Heads(*self._projected(operands, is_self))
        mask = self._joined_mask(heads, None if is_causal else attn_mask, key_padding_mask)
        if is_causal and (need_weights or mask is not None):
            mask = _combined(mask, _causal(heads))
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            weights = F.dropout(_weights(heads, mask), dropout)
            joined = weights @ heads.value
        else:
            is_causal = is_causal and mask is None
            joined = F.scaled_dot_product_attention(heads.query, heads.key, heads.value, mask, dropout, is_causal)
        order = (0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3)
        result: Tensor = self.out_proj(joined.permute(*order).reshape(operands[0].shape))
        if not need_weights:
            return result, None
        return result, weights.mean(axis=1) if average else weights

    def _projected(self, operands: list[Tensor], is_self: bool) -> list[Tensor]:
        """Return queries, keys and values as (n, heads, length, features of a head): strided views of the products."""
        size, order = self.embed_dim, (0, 2, 1, 3) if self.batch_first else (1, 2, 0, 3)
        if is_self and self.in_proj_weight is not None:
            packed = F.linear(operands[0], self.in_proj_weight, self.in_proj_bias)
            parts = packed.reshape(*packed.shape[:-1], 3, self.num_heads, self.head_dim)
            return [parts[:, :, number].permute(*order) for number in range(3)]
        results = []
        for number, (name, operand) in enumerate(zip("qkv", operands, strict=True)):
            rows = slice(size * number, size * (number + 1))
            packed_weight = self.in_proj_weight
            weight = getattr(self, f"{name}_proj_weight") if packed_weight is None else packed_weight[rows]
            bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
            split = F.linear(operand, weight, bias).reshape(*operand.shape[:-1], self.num_heads, self.head_dim)
            results.append(split.permute(*order))
        return results

    def _joined_mask(self, heads: _Heads, attn_mask: Any, key_padding_mask: Any) -> Tensor | None:
        """Return both masks combined, over (n, heads, l, s), with True where a key is seen."""
        mask = None
        if attn_mask is not None:
            mask = _seen(_mask(attn_mask, heads.query.device))
            if mask.ndim == 3:
                mask = mask.reshape(-1, self.num_heads, *mask.shape[1:])
        if key_padding_mask is not None:
            padding = _seen(_mask(key_padding_mask, heads.query.device))
            mask = _combined(mask, padding.reshape(padding.shape[0], 1, 1, padding.shape[1]))
        return mask


class _Heads(NamedTuple):
    """Queries, keys and values, each (n, heads, length, features of a head)."""

    query: Tensor
    key: Tensor
    value: Tensor


def _mask(mask: Any, device: Device) -> Tensor:
    checked = mask if isinstance(mask, Tensor) else tensor(mask, device=device)
    if checked.dtype not in ("bool", "float32"):
        raise UnsupportedError(f"an attention mask must be bool or float32, not {checked.dtype}")
    return checked


def _seen(mask: Tensor) -> Tensor:
    """Return the mask that functions take, with True for keys that are seen, from one with True for those left out."""
    return logical_not(mask) if mask.dtype is BOOL else mask


def _as_scores(mask: Tensor) -> Tensor:
    return where(mask, 0.0, -math.inf) if mask.dtype is BOOL else mask


def _combined(first: Tensor | None, second: Tensor) -> Tensor:
    if first is None:
        return second
    if first.dtype is BOOL and second.dtype is BOOL:
        return logical_and(first, second)
    return _as_scores(first) + _as_scores(second)


def _causal(heads: _Heads) -> Tensor:
    queries, keys = (arange(operand.shape[-2], operand.device) for operand in (heads.query, heads.key))
    return less_equal(keys, queries.reshape(-1, 1))


def _weights(heads: _Heads, mask: Tensor | None) -> Tensor:
    scores = (heads.query * (1.0 / math.sqrt(heads.query.shape[-1]))) @ heads.key.transpose(-1, -2)
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.dtype is BOOL else scores + mask
    return F.softmax(scores, -1)
