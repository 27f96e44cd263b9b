"""Kernels as loops that Numba compiles."""
