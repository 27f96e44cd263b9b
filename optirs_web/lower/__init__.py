"""Lowerings of `kernel.Kernel`: to a shader (`shader`), and to arrays for NumPy and JAX (`arrays`)."""
