"""The table of differentiable operations: one row for each way that an operation can be called.

A row holds the operation as its users call it, its float64 NumPy reference and torch's, and the shapes of its
inputs. `tests/test_operations.py` compares values, gradients and second derivatives on every device. The table is read
in the browser too, where there is no NumPy: only the references use it.
"""

from . import elementwise, linear, losses, networks, reductions, shapes, windows
from .case import Case, Variant
from .without_derivatives import HELPERS, WITHOUT_DERIVATIVES

__all__ = ["CASES", "HELPERS", "WITHOUT_DERIVATIVES", "Case", "Variant"]

CASES = [
    *elementwise.CASES, *linear.CASES, *reductions.CASES, *shapes.CASES, *windows.CASES, *networks.CASES, *losses.CASES,
]  # fmt: skip
