"""Rules that torch has: compared with torch itself."""

from .case import Case

__all__ = ["CASES"]

CASES = [
    Case("sgd", "SGD", {"lr": 0.01}),
    Case("sgd weight decay", "SGD", {"lr": 0.01, "weight_decay": 0.1}),
    Case("sgd maximize", "SGD", {"lr": 0.01, "maximize": True, "weight_decay": 0.1}),
    Case("sgd momentum", "SGD", {"lr": 0.01, "momentum": 0.9}),
    Case("sgd dampening", "SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.5}),
    Case("sgd nesterov", "SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    Case("adam", "Adam", {"lr": 0.01}),
    Case("adam weight decay", "Adam", {"lr": 0.01, "weight_decay": 0.1}),
    Case("adam amsgrad", "Adam", {"lr": 0.01, "amsgrad": True}),
    Case("adam maximize", "Adam", {"lr": 0.01, "maximize": True}),
    Case("adam betas", "Adam", {"lr": 0.01, "betas": (0.0, 0.9), "eps": 1e-6}),
    Case("adamw", "AdamW", {"lr": 0.01, "weight_decay": 0.01}),
    Case("adamw heavy decay", "AdamW", {"lr": 0.01, "weight_decay": 0.3}),
    Case("adamw amsgrad maximize", "AdamW", {"lr": 0.01, "weight_decay": 0.05, "amsgrad": True, "maximize": True}),
    Case("adamw betas", "AdamW", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6}),
]
