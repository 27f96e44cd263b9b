"""SGD, Adam and AdamW on their problems."""

from .convergence import Convergence

__all__ = ["CONVERGENCE"]

CONVERGENCE = [
    Convergence("SGD", {"lr": 1e-3, "momentum": 0.9}, "quadratic", 500, 1e4),
    Convergence("Adam", {"lr": 0.05}, "rosenbrock", 1000, 1e4),
    Convergence("AdamW", {"lr": 0.01}, "digits", 100, 10),
]
