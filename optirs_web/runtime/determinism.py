"""The mode in which results do not depend on a driver's choice of subgroups, by torch's names."""

from __future__ import annotations

__all__ = ["are_deterministic_algorithms_enabled", "use_deterministic_algorithms"]

_chosen = [False]


def use_deterministic_algorithms(mode: bool) -> None:
    """Reduce rows in an order that no driver chooses, which may take longer.

    On one device the same program gives the same bits each time, in either mode. But GPUs that have subgroups, and
    llvmpipe, reduce a row of more than 256 elements by them, in an order that the device chooses; and how many
    invocations form a subgroup differs between GPUs and, on some, between kernels. So the last bits of a softmax, a
    normalization, a cross-entropy or a sum may differ between two GPUs, two drivers, or a compiled step and the same
    operations one by one. In this mode rows are reduced through workgroup memory, in one order on all devices. Tiles of
    products, tuned kernels and libraries that replace kernels still depend on the device.

    The mode holds in all threads, for operations that are enqueued or recorded from now on; a compiled step keeps the
    mode in which it was recorded.

    Raises:
        TypeError: the mode is neither True nor False.

    Example:
        >>> import optirs_web as ow
        >>> ow.use_deterministic_algorithms(True)
        >>> ow.are_deterministic_algorithms_enabled()
        True
        >>> ow.use_deterministic_algorithms(False)
    """
    if not isinstance(mode, bool):
        raise TypeError(f"the mode must be True or False, not {mode!r}")
    _chosen[:] = [mode]


def are_deterministic_algorithms_enabled() -> bool:
    """Return the mode that `use_deterministic_algorithms` set last; False by default.

    Example:
        >>> import optirs_web as ow
        >>> ow.are_deterministic_algorithms_enabled()
        False
    """
    return _chosen[0]
