"""The check of a loss's `reduction` argument."""

from __future__ import annotations

__all__ = ["check_reduction"]


def check_reduction(reduction: str) -> None:
    """Check that `reduction` is "mean", "sum" or "none".

    Raises:
        ValueError: it is something else.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"a reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
