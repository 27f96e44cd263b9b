"""The table of optimizer cases: what is checked against the float64 references, and against torch.

A row is a name, the optimizer, its options, and the name of the reference with options that it needs besides. The
table is read in the browser too, where there may be no NumPy.
"""

from typing import Any, NamedTuple


class Case(NamedTuple):
    """One optimizer with one set of options."""

    name: str
    optimizer: str
    options: dict[str, Any]
    rule: str
    more: dict[str, Any]

    def reference(self, param, grads):
        """The parameter and its state after these gradients, in float64."""
        import references

        return getattr(references, self.rule)(param, grads, **self.options, **self.more)


def _case(name, optimizer, options, rule, **more):
    return Case(name, optimizer, options, rule, more)


CASES = [
    _case("sgd", "SGD", {"lr": 0.01}, "sgd"),
    _case("sgd weight decay", "SGD", {"lr": 0.01, "weight_decay": 0.1}, "sgd"),
    _case("sgd maximize", "SGD", {"lr": 0.01, "maximize": True, "weight_decay": 0.1}, "sgd"),
    _case("sgd momentum", "SGD", {"lr": 0.01, "momentum": 0.9}, "sgd"),
    _case("sgd dampening", "SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.5}, "sgd"),
    _case("sgd nesterov", "SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, "sgd"),
    _case("adam", "Adam", {"lr": 0.01}, "adam"),
    _case("adam weight decay", "Adam", {"lr": 0.01, "weight_decay": 0.1}, "adam"),
    _case("adam amsgrad", "Adam", {"lr": 0.01, "amsgrad": True}, "adam"),
    _case("adam maximize", "Adam", {"lr": 0.01, "maximize": True}, "adam"),
    _case("adam betas", "Adam", {"lr": 0.01, "betas": (0.0, 0.9), "eps": 1e-6}, "adam"),
    _case("adamw", "AdamW", {"lr": 0.01, "weight_decay": 0.01}, "adam", decoupled=True),
    _case("adamw heavy decay", "AdamW", {"lr": 0.01, "weight_decay": 0.3}, "adam", decoupled=True),
    _case("adamw amsgrad maximize", "AdamW", {"lr": 0.01, "weight_decay": 0.05, "amsgrad": True, "maximize": True},
          "adam", decoupled=True),
]  # fmt: skip
