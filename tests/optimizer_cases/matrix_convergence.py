"""Rules with matrix products on their problems."""

from .convergence import Convergence

__all__ = ["CONVERGENCE"]

CONVERGENCE = [
    Convergence("Muon", {"lr": 0.02, "weight_decay": 0.0}, "quadratic", 1000, 1e4),
    Convergence("Shampoo", {"lr": 1.0}, "quadratic", 500, 1e4),
    Convergence("GaLore", {"lr": 0.03, "rank": 4, "scale": 1.0, "update_proj_gap": 20}, "digits", 100, 70),
    Convergence("SOAP", {"lr": 0.01}, "digits", 100, 50),
]
