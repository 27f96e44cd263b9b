"""Random gradients of rows."""

import numpy as np

__all__ = ["entries"]


def entries(rng, count, shape):
    """Rows, often named several times, some of them -1, and values."""
    rows = rng.integers(-1, shape[0], count).astype(np.int32)
    return rows, rng.standard_normal((count, *shape[1:])).astype(np.float32)
