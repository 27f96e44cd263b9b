"""Rows for gradients of some rows: compared with torch's sparse ones, by tests/test_sparse_optimizers.py."""

from .case import Case

__all__ = ["SPARSE_CASES", "TABLES"]

TABLES = ((7,), (50, 3), (40, 2, 4), (1, 5), (300, 65))

SPARSE_CASES = [
    Case("sparse adam", "SparseAdam", {}, shapes=TABLES),
    Case("sparse adam betas", "SparseAdam", {"lr": 0.01, "betas": (0.0, 0.9), "eps": 1e-3}, shapes=TABLES),
    Case("sparse adam up", "SparseAdam", {"lr": 0.01, "betas": (0.8, 0.99), "maximize": True}, shapes=TABLES),
    Case("sparse sgd", "SGD", {"lr": 0.01}, shapes=TABLES),
    Case("sparse sgd up", "SGD", {"lr": 0.01, "maximize": True}, shapes=TABLES),
    Case("sparse sgd momentum", "SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.1}, shapes=TABLES),
    Case("sparse sgd nesterov", "SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True}, shapes=TABLES),
    Case("sparse adagrad", "Adagrad", {"lr": 0.01}, shapes=TABLES),
    Case("sparse adagrad decay", "Adagrad", {"lr": 0.1, "lr_decay": 0.05, "maximize": True}, shapes=TABLES),
    Case("sparse adagrad begun", "Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-3}, shapes=TABLES),
]
