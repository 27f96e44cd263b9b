"""Rules with state per row and per column."""

from .case import Case

__all__ = ["CASES"]

# Vectors among matrices; more rows and columns than a tile has, and stacks of small matrices and of large ones.
SHAPES = ((1,), (300,), (3, 5), (40, 24), (1, 700), (70, 1), (5, 2, 130), (60, 3, 3), (2, 3, 33, 34))
FEW = ((300,), (3, 5), (40, 24), (60, 3, 3))
MATRICES_AND_VECTORS = tuple(shape for shape in SHAPES if len(shape) < 3)

CASES = [
    Case("adafactor", "Adafactor", {"lr": 0.1}, shapes=SHAPES),
    Case("adafactor weight decay", "Adafactor", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}, shapes=FEW),
    Case("adafactor clipping", "Adafactor", {"lr": 0.05, "d": 1.5, "beta2_decay": -0.5}, shapes=FEW),
    Case("adafactor eps", "Adafactor", {"lr": 0.1, "eps": (1.1, 5.0)}, shapes=FEW),
    Case("came", "CAME", {"lr": 0.01}, "factored.came", shapes=SHAPES),
    Case("came weight decay", "CAME", {"lr": 0.01, "weight_decay": 0.1, "maximize": True}, "factored.came", shapes=FEW),
    Case("came betas", "CAME", {"lr": 0.01, "betas": (0.8, 0.99, 0.9)}, "factored.came", shapes=FEW),
    Case(
        "came clipping",
        "CAME",
        {"lr": 0.01, "clip_threshold": 0.5, "eps": (1e-2, 1e-2)},
        "factored.came",
        shapes=FEW,
    ),
    Case("sm3", "SM3", {"lr": 0.1}, "optax_twins.sm3", shapes=MATRICES_AND_VECTORS),
    Case("sm3 without momentum", "SM3", {"lr": 0.1, "momentum": 0.0}, "optax_twins.sm3", shapes=MATRICES_AND_VECTORS),
    Case("sm3 stacks", "SM3", {"lr": 0.1, "eps": 1e-2, "maximize": True}, "factored.sm3", shapes=FEW),
]
