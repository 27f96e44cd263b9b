"""Optimizers around others, where gradients that are given suffice. The others have tests of their own."""

from .case import Case

__all__ = ["CASES"]

CASES = [
    Case("fedprox", "FedProx", {"lr": 0.01, "mu": 0.5}, "wrappers.fedprox"),
    Case(
        "fedprox momentum", "FedProx", {"lr": 0.01, "mu": 0.1, "momentum": 0.9, "weight_decay": 0.1}, "wrappers.fedprox"
    ),
    Case("fedprox maximize", "FedProx", {"lr": 0.01, "mu": 0.2, "momentum": 0.5, "maximize": True}, "wrappers.fedprox"),
    Case("ranger", "Ranger", {"lr": 0.01}, "wrappers.ranger"),
    Case("ranger weight decay", "Ranger", {"lr": 0.01, "alpha": 0.8, "k": 7, "weight_decay": 0.1}, "wrappers.ranger"),
    Case(
        "ranger decoupled maximize",
        "Ranger",
        {"lr": 0.01, "k": 1, "alpha": 0.3, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
        "wrappers.ranger",
    ),
    Case("ranger betas", "Ranger", {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-8, "k": 3}, "wrappers.ranger"),
    Case("metasgd", "MetaSGD", {"lr": 0.01, "meta_lr": 0.1}, "wrappers.metasgd"),
    Case("metasgd maximize", "MetaSGD", {"lr": 0.02, "maximize": True}, "wrappers.metasgd"),
]
