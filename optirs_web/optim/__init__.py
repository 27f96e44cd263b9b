"""Optimizers: torch's names, arguments and state; one WGSL rule each in ``shaders/optimizers``."""

from .adam import Adam, AdamW
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]
