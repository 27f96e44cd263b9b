"""The differentiable operations: each a kernel or map function, and a gradient rule."""

from .arithmetic import add, add_into, clone, divide, exp, multiply, negate, relu, subtract
from .creation import full, manual_seed, ones, rand, randn, zeros
from .linear import matmul
from .losses import cross_entropy, log_softmax
from .reduce import mean, sum, sum_to
from .shape import broadcast_to, permute, reshape, transpose

__all__ = [
    "add",
    "add_into",
    "broadcast_to",
    "clone",
    "cross_entropy",
    "divide",
    "exp",
    "full",
    "log_softmax",
    "manual_seed",
    "matmul",
    "mean",
    "multiply",
    "negate",
    "ones",
    "permute",
    "rand",
    "randn",
    "relu",
    "reshape",
    "subtract",
    "sum",
    "sum_to",
    "transpose",
    "zeros",
]
