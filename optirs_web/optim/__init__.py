"""Optimizers: torch's names, arguments and state; one WGSL rule each in ``shaders/optimizers``."""

from .adam import Adam, AdamW
from .lamb import LAMB
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["LAMB", "SGD", "Adam", "AdamW", "Optimizer"]
