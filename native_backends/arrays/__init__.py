"""Routines and the plumbing around arrays, written once for NumPy and JAX.

A routine replaces a cooperative kernel. It is called with `xp`, the kernel's parameters and its bindings, and
returns the bindings that the kernel writes, in their order. `xp` is the module `numpy_arrays` or `jax_arrays`: the
names of `numpy` or `jax.numpy`, and a few functions for what the two do differently. In NumPy bindings are bytes, which
are written in place, and results that are views of them; in JAX they are vectors of 32-bit elements, and results are
new ones.

The kernels of optimizers' rules are written likewise, over what a library supplies: see `rules`.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["Array", "Parameters", "Results"]

Array = Any
"""A NumPy or JAX array."""

Parameters = Mapping[str, Any]
"""The parameters of a kernel by name; in JAX some may be traced."""

Results = Any
"""A tuple of arrays: what the kernel writes."""
