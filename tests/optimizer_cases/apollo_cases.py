"""APOLLO: scaled gradients of matrices, and AdamW for what is not projected."""

from .case import Case

__all__ = ["CASES"]

SHAPES = ((1,), (33,), (5, 3), (16, 16), (40, 24), (16, 16), (6, 2, 5), (9, 70))

CASES = [
    Case("apollo", "APOLLO", {"lr": 0.01, "rank": 5, "update_proj_gap": 30}, "apollo.apollo", shapes=SHAPES),
    Case(
        "apollo maximize",
        "APOLLO",
        {
            "lr": 0.01,
            "rank": 8,
            "maximize": True,
            "betas": (0.8, 0.9),
            "eps": 1e-3,
            "weight_decay": 0.1,
            "scale": 2.0,
            "gamma": 0.0,
            "seed": 4_000_000_000,
        },
        "apollo.apollo",
        shapes=((12, 20), (20, 12), (8, 30), (12, 20)),
    ),
    Case(
        "apollo mini",
        "APOLLO",
        {"lr": 0.01, "rank": 1, "scale_type": "tensor", "scale": 8.0, "update_proj_gap": 1},
        "apollo.apollo",
        shapes=((16, 16), (40, 24), (2, 300), (16, 16), (24,)),
    ),
]
