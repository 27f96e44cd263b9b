"""The differentiable operations: each a kernel or map function, and a gradient rule."""

from ..lazy import public_names
from .calls import operation

__getattr__, __dir__, __all__ = public_names(__name__, wrap=operation)
