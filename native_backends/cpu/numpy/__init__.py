"""Kernels as NumPy's operations on arrays."""
