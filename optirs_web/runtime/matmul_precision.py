"""How exactly products of float32 are computed where a device has faster ways: torch's three words for it."""

from __future__ import annotations

__all__ = ["float32_matmul_precision", "set_float32_matmul_precision"]

_PRECISIONS = ("highest", "high", "medium")

_chosen = ["highest"]


def set_float32_matmul_precision(precision: str) -> None:
    """Let products of float32 be less exact, where that is faster: on `cuda` with cuBLAS, and on `xla`.

    It holds for products that are enqueued or recorded from now on; a compiled step keeps what it was recorded with.
    Other devices compute as under "highest", and so does `cuda` without cuBLAS.

    Args:
        precision: "highest" for float32 throughout; "high" for factors rounded to TF32, which has 11 significant bits;
            "medium" for factors rounded to bfloat16, which has 8. Sums are of float32 in each. On `xla` these are XLA's
            HIGHEST, HIGH and DEFAULT: on a TPU six, three and one passes in bfloat16, on a GPU float32, TF32 and TF32.

    Raises:
        ValueError: it is none of these.

    Example:
        >>> import optirs_web as ow
        >>> ow.set_float32_matmul_precision("high")
        >>> ow.set_float32_matmul_precision("highest")
    """
    if precision not in _PRECISIONS:
        raise ValueError(f"a precision must be one of {', '.join(_PRECISIONS)}, not '{precision}'")
    _chosen[:] = [precision]


def float32_matmul_precision() -> str:
    """Return the precision of float32 products that was set last: "highest" (at first), "high" or "medium"."""
    return _chosen[0]
