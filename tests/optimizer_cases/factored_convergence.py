"""Rules with state per row and per column on their problems."""

from .convergence import Convergence

__all__ = ["CONVERGENCE"]

CONVERGENCE = [
    Convergence("Adafactor", {"lr": 0.1}, "digits", 100, 200),
    Convergence("CAME", {"lr": 0.003}, "digits", 100, 1e4),
    Convergence("SM3", {"lr": 0.1}, "quadratic", 500, 1e6),
]
