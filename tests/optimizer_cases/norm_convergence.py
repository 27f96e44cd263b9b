"""Rules with norms of whole tensors, and those that estimate the distance to the solution, on their problems."""

from .convergence import Convergence

__all__ = ["CONVERGENCE"]

CONVERGENCE = [
    Convergence("LAMB", {"lr": 0.01}, "quadratic", 1000, 2e8),
    Convergence("LAMB", {"lr": 0.01}, "digits", 200, 5e4),
    Convergence("LARS", {"lr": 0.1, "trust_coefficient": 0.01}, "quadratic", 2000, 1e10),
    # Further on, gradients are rounding errors, and the trust ratio makes steps of full length of them.
    Convergence("LARS", {"lr": 0.5, "trust_coefficient": 0.02}, "digits", 100, 1e6),
    Convergence("NovoGrad", {"lr": 0.01}, "quadratic", 1000, 4e6),
    Convergence("NovoGrad", {"lr": 0.01}, "digits", 200, 300),
    Convergence("AdamMini", {"lr": 0.1}, "quadratic", 1000, 4e7),
    Convergence("AdamMini", {"lr": 0.01}, "digits", 200, 500),
    Convergence("Prodigy", {}, "quadratic", 1000, 1e10),
    Convergence("Prodigy", {}, "digits", 200, 1e4),
    # d / |g0| is a learning rate that knows nothing of the curvature: a steep problem bounds lr.
    Convergence("DAdaptSGD", {"lr": 0.2}, "quadratic", 2000, 1e4),
    Convergence("DAdaptSGD", {"lr": 0.1, "momentum": 0.9}, "digits", 200, 9),
    Convergence("DAdaptAdaGrad", {}, "quadratic", 1000, 1e10),
    Convergence("DAdaptAdaGrad", {}, "digits", 200, 100),
    Convergence("DAdaptAdam", {}, "quadratic", 1000, 4e5),
    Convergence("DAdaptAdam", {"use_bias_correction": True}, "digits", 200, 1e4),
    Convergence("DoG", {}, "quadratic", 1000, 600),
    Convergence("DoG", {"reps_rel": 1e-4}, "digits", 200, 150),
    Convergence("LDoG", {"reps_rel": 1e-3}, "quadratic", 2000, 3e4),
    Convergence("LDoG", {"reps_rel": 1e-3}, "digits", 200, 200),
]
