"""Small real data sets that come with the package. Needs NumPy."""

from optirs_web.datasets.digits import Digits, load_digits

__all__ = ["Digits", "load_digits"]
