"""Rules with norms of whole tensors."""

from .case import Case

__all__ = ["CASES"]

CASES = [
    Case("lamb", "LAMB", {"lr": 0.01, "eps": 1e-6}, "optax_twins.lamb"),
    Case("lamb weight decay", "LAMB", {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.9)}, "optax_twins.lamb"),
    Case("lamb uncorrected", "LAMB", {"lr": 0.01, "bias_correction": False}, "norms.lamb"),
    Case("lamb maximize", "LAMB", {"lr": 0.01, "maximize": True}, "norms.lamb"),
]
