"""Optimizers: torch's names, arguments and state; one WGSL rule each in ``shaders/optimizers``."""

from .adam import Adam, AdamW
from .hooks import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from .lamb import LAMB
from .optimizer import Optimizer
from .sgd import SGD

__all__ = [
    "LAMB",
    "SGD",
    "Adam",
    "AdamW",
    "Optimizer",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
]
