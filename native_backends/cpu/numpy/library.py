"""Library calls that take the place of cooperative kernels.

Each is called with the kernel's parameters and its bindings as bytes, and writes the bindings that the kernel writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...arrays import numpy_arrays
from ...arrays.routines import ROUTINES
from . import windows

__all__ = ["REPLACEMENTS", "Array", "Parameters"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


REPLACEMENTS: dict[str, Callable[..., Any]] = {
    **{name: partial(routine, numpy_arrays) for name, routine in ROUTINES.items()},
    **windows.REPLACEMENTS,
}
