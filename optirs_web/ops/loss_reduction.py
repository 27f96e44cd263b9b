"""What a loss makes of the losses of its elements."""

from __future__ import annotations

__all__ = ["check_reduction"]


def check_reduction(reduction: str) -> None:
    """Refuse what is no reduction."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"a reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
