"""The order of the samples in an epoch, the same wherever Python runs: a browser tab may have no NumPy."""

from __future__ import annotations

__all__ = ["epoch_order"]


def epoch_order(count: int, seed: int, epoch: int) -> list[int]:
    """The numbers 0 to count - 1, shuffled.

    The order depends on seed and epoch alone, so that a continued run shuffles as an uninterrupted one. It uses
    `random.Random.random`, the only method whose sequence Python promises to keep.

    Args:
        count: number of samples.
        seed: that of the run, below 2**64.
        epoch: counted from 0.

    Example:
        >>> epoch_order(5, seed=0, epoch=1)
        [1, 2, 4, 3, 0]
    """
    import random  # which imports hashes; a page that does not shuffle needs none

    uniform = random.Random(epoch << 64 | seed).random
    return sorted(range(count), key=lambda _: uniform())
