"""Rules with matrix products on their problems."""

from typing import Any

from .convergence import Convergence

__all__ = ["CONVERGENCE"]


def _diagonal(step: float) -> list[list[float]]:
    """Eight examples whose mean of squares is diagonal, geometric in powers of 1,000."""
    return [[(8 * 1000 ** (step * row)) ** 0.5 * (row == column) for column in range(8)] for row in range(8)]


def _factors() -> list[tuple[Any, Any]]:
    """The Hessian of "quadratic", which is the product of these factors."""
    return [(_diagonal(1 / 63), _diagonal(8 / 63))]


CONVERGENCE = [
    Convergence("Muon", {"lr": 0.02, "weight_decay": 0.0}, "quadratic", 1000, 1e4),
    Convergence("Shampoo", {"lr": 1.0}, "quadratic", 500, 1e4),
    Convergence("GaLore", {"lr": 0.03, "rank": 4, "scale": 1.0, "update_proj_gap": 20}, "digits", 100, 70),
    Convergence("SOAP", {"lr": 0.01}, "digits", 100, 50),
    Convergence("APOLLO", {"lr": 0.01, "rank": 4}, "digits", 100, 40),
    Convergence("APOLLO", {"lr": 0.01, "rank": 1, "scale_type": "tensor", "scale": 128**0.5}, "digits", 100, 120),
    Convergence(
        "KFAC",
        {"lr": 0.5, "damping": 0.0, "momentum": 0.0, "kl_clip": None, "statistics": _factors},
        "quadratic",
        20,
        1e9,
    ),
]
