"""Small real data sets that are part of the package. The digits need NumPy, the book does not."""

from ..lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
