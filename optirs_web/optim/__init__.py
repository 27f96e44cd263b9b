"""Optimizers: torch's names, arguments and state; one WGSL rule each in ``shaders/optimizers``."""

from ..lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
