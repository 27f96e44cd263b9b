"""The routines of this folder by the names of the kernels that they replace."""

from __future__ import annotations

from collections.abc import Callable

from . import Results, attention, indexing, matrices, products, scaling, sparse, storage

__all__ = ["ROUTINES", "TRACED"]

ROUTINES: dict[str, Callable[..., Results]] = {
    **attention.ROUTINES,
    **indexing.ROUTINES,
    **matrices.ROUTINES,
    **products.ROUTINES,
    **scaling.ROUTINES,
    **sparse.ROUTINES,
    **storage.ROUTINES,
}

TRACED: dict[str, frozenset[str]] = {**attention.TRACED, **products.TRACED}
"""The parameters of a routine that may be traced by JAX: they decide no shape."""
