"""Optimizers around others, those that are made of parameters alone. The others have tests of their own."""

from .convergence import Convergence

__all__ = ["CONVERGENCE"]

CONVERGENCE = [
    Convergence("FedProx", {"lr": 1e-3, "mu": 0.01, "momentum": 0.9}, "quadratic", 300, 5e5),
    # RAdam's first five steps go along the gradient, whose size bounds lr on Rosenbrock.
    Convergence("Ranger", {"lr": 0.003}, "quadratic", 2000, 1e3),
    Convergence("Ranger", {"lr": 0.1}, "digits", 100, 100),
    Convergence("MetaSGD", {"lr": 1.5e-3}, "quadratic", 1000, 2e4),
]
