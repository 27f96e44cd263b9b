"""The table of optimizer cases: what is checked against the float64 references, and against torch.

A row is a name, the optimizer, its options, and the reference with options that it needs besides.
"""

from typing import Any, NamedTuple

import references


class Case(NamedTuple):
    """One optimizer with one set of options."""

    name: str
    optimizer: str
    options: dict[str, Any]
    reference: Any
    more: dict[str, Any]


def _case(name, optimizer, options, reference, **more):
    return Case(name, optimizer, options, reference, more)


CASES = [
    _case("sgd", "SGD", {"lr": 0.01}, references.sgd),
    _case("sgd weight decay", "SGD", {"lr": 0.01, "weight_decay": 0.1}, references.sgd),
    _case("sgd maximize", "SGD", {"lr": 0.01, "maximize": True, "weight_decay": 0.1}, references.sgd),
    _case("sgd momentum", "SGD", {"lr": 0.01, "momentum": 0.9}, references.sgd),
    _case("sgd dampening", "SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.5}, references.sgd),
    _case("sgd nesterov", "SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, references.sgd),
    _case("adam", "Adam", {"lr": 0.01}, references.adam),
    _case("adam weight decay", "Adam", {"lr": 0.01, "weight_decay": 0.1}, references.adam),
    _case("adam amsgrad", "Adam", {"lr": 0.01, "amsgrad": True}, references.adam),
    _case("adam maximize", "Adam", {"lr": 0.01, "maximize": True}, references.adam),
    _case("adam betas", "Adam", {"lr": 0.01, "betas": (0.0, 0.9), "eps": 1e-6}, references.adam),
    _case("adamw", "AdamW", {"lr": 0.01, "weight_decay": 0.01}, references.adam, decoupled=True),
    _case("adamw heavy decay", "AdamW", {"lr": 0.01, "weight_decay": 0.3}, references.adam, decoupled=True),
    _case("adamw amsgrad maximize", "AdamW", {"lr": 0.01, "weight_decay": 0.05, "amsgrad": True, "maximize": True},
          references.adam, decoupled=True),
]  # fmt: skip
