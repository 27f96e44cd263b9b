"""The convergence that each optimizer must reach: on a problem, at a learning rate, in a number of steps."""

from typing import Any, NamedTuple

__all__ = ["Convergence"]


class Convergence(NamedTuple):
    """One optimizer on one problem.

    Attributes:
        optimizer: the class in `optirs_web.optim`.
        options: what it is given, `lr` included.
        problem: "rosenbrock" (from (-1.2, 1)), "quadratic" (64 unknowns, condition 1,000, from ones) or "digits" (the
            network 64-32-10, full batches of 256).
        steps: how many.
        factor: the loss at the end is at most that at the beginning divided by this.
    """

    optimizer: str
    options: dict[str, Any]
    problem: str
    steps: int
    factor: float
