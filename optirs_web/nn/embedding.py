"""Embedding: a table whose rows are looked up by number."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..ops import zeros
from ..runtime.device import Device
from ..tensors import Parameter, Tensor
from . import functional as F, init
from .module import Module

__all__ = ["Embedding"]


class Embedding(Module):
    """A table whose rows are looked up by number.

    Args:
        num_embeddings: the rows.
        embedding_dim: their length.
        padding_idx: a row of zeros that gets no gradient; counted from the end where it is negative.
        device: what `optirs_web.device` takes.

    Attributes:
        weight: (num_embeddings, embedding_dim), standard normal at first.

    Raises:
        ShapeError: there is no row `padding_idx`.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.Embedding(10, 4, device="cpu")([[1, 2, 3]]).shape
        (1, 3, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        device: str | Device | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ShapeError(f"there is no row {padding_idx} among {num_embeddings}")
        self.padding_idx = padding_idx if padding_idx is None else padding_idx % num_embeddings
        self.weight = Parameter(zeros((num_embeddings, embedding_dim), device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values for the table."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            nbytes = self.weight.dtype.itemsize * self.embedding_dim
            row = self.weight.view.part(nbytes * self.padding_idx, nbytes)
            self.weight.device.copy(zeros(self.embedding_dim, self.weight.device).view, row)

    def forward(self, input: Any) -> Tensor:
        """Return the rows of int32 numbers of any shape: (*shape, embedding_dim)."""
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
