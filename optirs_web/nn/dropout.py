"""Dropout: elements set to 0 at random while training."""

from __future__ import annotations

from ..tensors import Tensor
from . import functional as F
from .module import Module

__all__ = ["Dropout"]


class Dropout(Module):
    """In training each element is 0 with probability p, and the others are divided by 1 - p (Srivastava et al. 2014).

    Args:
        p: from 0 to 1.
        inplace: accepted as torch does; tensors are not changed in place.

    Raises:
        ValueError: `p` is no probability.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.Dropout(0.5).eval()(ow.ones((2,), device="cpu")).tolist()
        [1.0, 1.0]
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"p must be from 0 to 1, not {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements of a tensor of any shape in training; return it unchanged otherwise."""
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"
