"""Element-wise rules of today on their problems. Each factor is half of what was measured, or less."""

from typing import Any

from .convergence import Convergence

__all__ = ["CONVERGENCE"]

_CURVATURES = [[1000 ** ((8 * row + column) / 63) for column in range(8)] for row in range(8)]
"""Of "quadratic"."""


def _curvatures() -> list[Any]:
    return [_CURVATURES]


def _products(vectors: list[Any]) -> list[Any]:
    return [vectors[0] * _CURVATURES]


CONVERGENCE = [
    Convergence("Lion", {"lr": 0.003}, "digits", 150, 150),
    Convergence("Signum", {"lr": 0.003}, "digits", 150, 500),
    Convergence("CautiousAdamW", {"lr": 0.05}, "rosenbrock", 1000, 2500),
    Convergence("CautiousAdamW", {"lr": 0.01}, "digits", 100, 250),
    Convergence("CautiousLion", {"lr": 0.003}, "digits", 150, 1000),
    Convergence("AdaBelief", {"lr": 0.05}, "rosenbrock", 1000, 8000),
    Convergence("AdaBelief", {"lr": 0.01}, "digits", 100, 300),
    Convergence("Yogi", {"lr": 0.02}, "digits", 150, 400),
    Convergence("Adan", {"lr": 0.05}, "rosenbrock", 1000, 50000),
    Convergence("Adan", {"lr": 0.02}, "digits", 100, 10000),
    Convergence("ADOPT", {"lr": 0.05}, "rosenbrock", 2000, 9),
    Convergence("ADOPT", {"lr": 0.01}, "digits", 150, 1000),
    Convergence("AdEMAMix", {"lr": 0.01}, "quadratic", 1000, 4000),
    Convergence("AdEMAMix", {"lr": 0.01}, "digits", 100, 150),
    Convergence("AdaBound", {"lr": 0.01}, "digits", 150, 130),
    Convergence("MARS", {"lr": 0.02}, "rosenbrock", 1000, 50000),
    Convergence("MARS", {"lr": 0.01}, "digits", 100, 400),
    Convergence("FTRL", {"lr": 1.0}, "digits", 150, 70),
    Convergence("SGDScheduleFree", {"lr": 0.005}, "quadratic", 1000, 50000),
    Convergence("SGDScheduleFree", {"lr": 1.0}, "digits", 150, 100),
    Convergence("AdamWScheduleFree", {"lr": 0.01}, "digits", 150, 200),
    Convergence("SophiaH", {"lr": 0.1, "gamma": 1.0, "hvp": _products}, "quadratic", 1000, 1e9),
    Convergence("DiagonalNewton", {"lr": 0.5, "diagonal": _curvatures}, "quadratic", 20, 1e9),
]
