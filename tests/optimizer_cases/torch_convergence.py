"""torch's other optimizers on their problems."""

from .convergence import Convergence

__all__ = ["CONVERGENCE"]

CONVERGENCE = [
    Convergence("Adamax", {"lr": 0.1}, "rosenbrock", 2000, 2000),
    Convergence("Adamax", {"lr": 0.02}, "digits", 100, 100),
    Convergence("NAdam", {"lr": 0.05}, "rosenbrock", 1000, 800),
    Convergence("NAdam", {"lr": 0.01}, "digits", 100, 90),
    # Before it rectifies, the step is proportional to the gradient, so steep problems bound lr.
    Convergence("RAdam", {"lr": 2e-3}, "quadratic", 1000, 100),
    Convergence("RAdam", {"lr": 0.03}, "digits", 200, 100),
    Convergence("Adagrad", {"lr": 1.0}, "rosenbrock", 1000, 200),
    Convergence("Adagrad", {"lr": 0.1}, "digits", 100, 45),
    # More steps bring it no closer: theirs is a length that does not shrink with the gradient.
    Convergence("Adadelta", {"lr": 1.0}, "rosenbrock", 500, 35),
    Convergence("Adadelta", {"lr": 1.0}, "digits", 200, 80),
    Convergence("RMSprop", {"lr": 5e-3, "momentum": 0.9, "centered": True}, "rosenbrock", 1000, 2000),
    Convergence("RMSprop", {"lr": 3e-3}, "digits", 100, 25),
    Convergence("Rprop", {"lr": 0.01}, "rosenbrock", 1000, 2000),
    Convergence("Rprop", {"lr": 0.01}, "quadratic", 500, 1e8),
    Convergence("ASGD", {"lr": 1.5e-3}, "quadratic", 500, 3000),
    Convergence("ASGD", {"lr": 0.5}, "digits", 200, 50),
]
