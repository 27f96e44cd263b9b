"""The table of optimizer cases: what is checked against torch, optax or a float64 reference, on every device.

Each family has a module with its rows. They are read in the browser too, where there may be no NumPy.
"""

from . import (
    apollo_cases,
    core_convergence,
    factored_cases,
    factored_convergence,
    kfac_cases,
    matrix_cases,
    matrix_convergence,
    modern_cases,
    modern_convergence,
    norm_cases,
    norm_convergence,
    torch_cases,
    torch_convergence,
    wrapper_cases,
    wrapper_convergence,
)
from .case import VECTORS, Case
from .driven_cases import DRIVEN_CASES, Problem
from .sparse_cases import SPARSE_CASES

__all__ = ["CASES", "CONVERGENCE", "DRIVEN_CASES", "SPARSE_CASES", "VECTORS", "Case", "Problem"]

CASES = [
    *torch_cases.CASES,
    *norm_cases.CASES,
    *factored_cases.CASES,
    *matrix_cases.CASES,
    *apollo_cases.CASES,
    *kfac_cases.CASES,
    *modern_cases.CASES,
    *wrapper_cases.CASES,
]

CONVERGENCE = [
    *core_convergence.CONVERGENCE,
    *torch_convergence.CONVERGENCE,
    *norm_convergence.CONVERGENCE,
    *factored_convergence.CONVERGENCE,
    *matrix_convergence.CONVERGENCE,
    *modern_convergence.CONVERGENCE,
    *wrapper_convergence.CONVERGENCE,
]
