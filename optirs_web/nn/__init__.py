"""Modules with torch's names: layers, losses, containers; initial values; functions; data sets in batches.

What is written for torch.nn runs unchanged but for the import, and torch's weights load as they are.
"""

from ..lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
