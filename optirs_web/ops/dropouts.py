"""Dropout, whose mask is computed again in the backward pass instead of being stored."""

from __future__ import annotations

from ..autograd import record
from ..launch import apply, need_float32
from ..tensor_class import Tensor
from .random_state import Draw, next_draw

__all__ = ["dropout"]


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Elements set to 0 at random, each with probability p, and the others divided by 1 - p (Hinton et al. 2012).

    The mask is drawn by counter, so that nothing is stored for the backward pass: the gradient, g with the same
    elements dropped, draws the same numbers again. A dropped element is 0 whatever it was; in torch NaN and infinity
    leave NaN there. With p = 1 all are 0.

    Args:
        x: float32, of any shape.
        p: from 0 to 1.
        training: otherwise the tensor is returned as it is.

    Raises:
        ValueError: p is no probability.
        UnsupportedError: the tensor is not float32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web.ops import dropout
        >>> ow.manual_seed(0)
        >>> sorted(set(dropout(ow.ones((100,), device="cpu"), 0.75).tolist()))
        [0.0, 4.0]
    """
    need_float32("dropout", x)
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout needs a probability from 0 to 1, not {p}")
    if not training or p == 0.0:
        return x
    return _dropped(x, p, next_draw(x.device))


def _dropped(x: Tensor, p: float, draw: Draw) -> Tensor:
    """Apply the mask of a draw. It is linear in x, so its gradient is the same operation."""
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    return record(
        apply("dropout", "dropout", x, *draw, p, scale, shape=x.shape), (x, lambda g, _: _dropped(g, p, draw))
    )
