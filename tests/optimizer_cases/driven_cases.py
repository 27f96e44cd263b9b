"""Optimizers that ask for gradients themselves: around others, with two kinds of steps, or driven by the host.

All go down the sum of c (w - optimum)²/2 + (w - optimum)⁴/4, whose Hessian is diagonal.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import optirs_web as ow

__all__ = ["DRIVEN_CASES", "Driven", "Problem"]


class Problem:
    """The loss of some parameters, with the curvatures c."""

    def __init__(self, params, curvatures):
        self.params, self.curvatures = params, curvatures

    def closure(self, optimum):
        """Computes the loss and adds its gradients to those there are."""

        def closure():
            total = 0.0
            for param, curvature in zip(self.params, self.curvatures, strict=True):
                moved = param - optimum
                square = moved * moved
                total = total + (curvature * square * 0.5 + square * square * 0.25).sum()
            total.backward()
            return total

        return closure

    def zeroed(self, optimizer, optimum):
        """Return a closure that sets the gradients to zero first."""
        closure = self.closure(optimum)

        def zeroed():
            optimizer.zero_grad()
            return closure()

        return zeroed

    def products(self, optimum):
        """Return a function that computes products of the Hessian with vectors."""

        def hvp(vectors):
            moved = [(param - optimum).detach() for param in self.params]
            triples = zip(self.curvatures, moved, vectors, strict=True)
            return [(c + 3.0 * (w * w)) * v for c, w, v in triples]

        return hvp


def lookahead(problem, steps, *, optimum, lr, momentum, **options):
    inner = ow.optim.SGD(problem.params, lr=lr, momentum=momentum)
    optimizer = ow.optim.Lookahead(inner, **options)
    for _ in range(steps):
        optimizer.step(problem.zeroed(optimizer, optimum))
    return [optimizer.state[param]["slow_param"] for param in problem.params]


def sam(problem, steps, *, optimum, lr, maximize=False, **options):
    optimizer = ow.optim.SAM(ow.optim.SGD(problem.params, lr=lr, maximize=maximize), **options)
    for _ in range(steps):
        optimizer.step(problem.closure(optimum))
    return []


def reptile(problem, steps, *, optima, lr, **options):
    optimizer = ow.optim.Reptile(ow.optim.SGD(problem.params, lr=lr), **options)
    for _ in range(steps):
        optimizer.step([problem.closure(optimum) for optimum in optima])
    return []


def metasgd(problem, steps, *, support, query, is_exact, **options):
    hvp = problem.products(support) if is_exact else None
    optimizer = ow.optim.MetaSGD(problem.params, hvp=hvp, **options)
    for _ in range(steps):
        optimizer.step(problem.zeroed(optimizer, support))
        optimizer.zero_grad()
        optimizer.meta_step(problem.closure(query))
    return [optimizer.state[param]["alpha"] for param in problem.params]


def newton_cg(problem, steps, *, optimum, **options):
    optimizer = ow.optim.NewtonCG(problem.params, problem.products(optimum), **options)
    for _ in range(steps):
        optimizer.step(problem.zeroed(optimizer, optimum))
    return []


def lbfgs(problem, steps, *, optimum, **options):
    optimizer = ow.optim.LBFGS(problem.params, **options)
    for _ in range(steps):
        optimizer.step(problem.zeroed(optimizer, optimum))
    return []


class Driven(NamedTuple):
    """One such optimizer with one set of options.

    Attributes:
        name: of the case.
        optimizer: the class in `optirs_web.optim`.
        run: takes a `Problem`, steps and options, and gives state by parameter.
        options: of the run, and of the reference of its name in `tests/optimizer_references/driven.py`.
        source: what it is compared with.
        steps: how many.
        tolerance: of the largest magnitude.
    """

    name: str
    optimizer: str
    run: Callable[..., Any]
    options: dict[str, Any]
    source: str = "reference"
    steps: int = 100
    tolerance: float = 5e-6


DRIVEN_CASES = [
    *(
        Driven(f"lookahead {k} {alpha}", "Lookahead", lookahead,
               {"optimum": 0.5, "lr": 0.01, "momentum": 0.9, "k": k, "alpha": alpha})
        for k, alpha in ((5, 0.5), (1, 0.3), (7, 1.0))
    ),
    Driven("sam", "SAM", sam, {"optimum": 0.5, "lr": 0.02, "rho": 0.05}),
    Driven("sam adaptive", "SAM", sam, {"optimum": 0.5, "lr": 0.02, "rho": 0.5, "adaptive": True}),
    Driven("sam maximize", "SAM", sam, {"optimum": 0.5, "lr": 0.0001, "rho": 0.2, "maximize": True}),
    Driven("sam without rho", "SAM", sam, {"optimum": 0.5, "lr": 0.02, "rho": 0.0}),
    Driven("reptile", "Reptile", reptile, {"optima": (0.5,), "lr": 0.02, "epsilon": 0.4, "inner_steps": 4}),
    Driven("reptile tasks", "Reptile", reptile,
           {"optima": (1.0, -0.5, 0.25), "lr": 0.02, "epsilon": 0.1, "inner_steps": 2}),
    *(
        Driven(f"metasgd {'exact' if is_exact else 'first order'}", "MetaSGD", metasgd,
               {"support": 0.5, "query": -0.25, "is_exact": is_exact, "lr": 0.02, "meta_lr": 1e-5})
        for is_exact in (True, False)
    ),
    # A twentieth of Newton's step, so that after 100 there still is a way to go; and a tolerance of 0, since float32
    # may stop an iteration sooner or later than float64.
    Driven("newton-cg", "NewtonCG", newton_cg, {"optimum": 0.5, "lr": 0.05, "max_iter": 8, "tolerance": 0.0}),
    Driven("newton-cg truncated", "NewtonCG", newton_cg, {"optimum": 0.5, "lr": 0.05, "max_iter": 2, "tolerance": 0.0}),
    Driven("newton-cg damped", "NewtonCG", newton_cg,
           {"optimum": 0.5, "lr": 0.05, "max_iter": 3, "tolerance": 0.0, "damping": 1.0}),
    Driven("l-bfgs", "LBFGS", lbfgs, {"optimum": 0.5, "lr": 0.2, "max_iter": 1, "history_size": 10}, "torch"),
    # On its way; above, at the minimum. A pair is the difference of two gradients, of which a step of a twentieth
    # leaves float32 that much less: 6e-8 becomes 1e-6 of the curvature, which each iteration passes on to the next.
    Driven("l-bfgs short", "LBFGS", lbfgs, {"optimum": 0.5, "lr": 0.05, "max_iter": 1, "history_size": 10}, "torch",
           tolerance=1e-4),
    Driven("l-bfgs strong wolfe", "LBFGS", lbfgs,
           {"optimum": 0.5, "max_iter": 2, "history_size": 5, "line_search_fn": "strong_wolfe"}, "torch"),
]  # fmt: skip
