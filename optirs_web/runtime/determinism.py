"""Whether a driver's choice of subgroups may show in results: torch's names for it."""

from __future__ import annotations

__all__ = ["are_deterministic_algorithms_enabled", "use_deterministic_algorithms"]

_chosen = [False]


def use_deterministic_algorithms(mode: bool) -> None:
    """Have sums of rows be added up in an order that no driver chooses, which may take longer.

    On one device the same program gives the same bits each time, in either mode. But GPUs that have subgroups, and
    llvmpipe, reduce a row of more than 256 elements by them, in an order of their own; and how many invocations form a
    subgroup differs between GPUs and, on some, between kernels: so the last bits of a softmax, a normalization, a
    cross-entropy or a sum may differ between two GPUs, two drivers, or a compiled step and the same operations one by
    one. In this mode rows are reduced through workgroup memory, in one order for all. Other choices that depend on the
    device stay: tiles of products, tuned kernels, and libraries that take a kernel's place.

    It holds for what is enqueued or recorded from now on; a compiled step keeps what it was recorded with.

    Example:
        >>> import optirs_web as ow
        >>> ow.use_deterministic_algorithms(True)
        >>> ow.are_deterministic_algorithms_enabled()
        True
        >>> ow.use_deterministic_algorithms(False)
    """
    _chosen[:] = [bool(mode)]


def are_deterministic_algorithms_enabled() -> bool:
    """Return what `use_deterministic_algorithms` was given last.

    Example:
        >>> import optirs_web as ow
        >>> ow.are_deterministic_algorithms_enabled()
        False
    """
    return _chosen[0]
