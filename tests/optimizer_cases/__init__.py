"""The table of optimizer cases: what is checked against torch, optax or a float64 reference, on every device.

Each family has a module with its rows. They are read in the browser too, where there may be no NumPy.
"""

from . import core_convergence, norm_cases, torch_cases
from .case import VECTORS, Case

__all__ = ["CASES", "CONVERGENCE", "VECTORS", "Case"]

CASES = [*torch_cases.CASES, *norm_cases.CASES]

CONVERGENCE = [*core_convergence.CONVERGENCE]
