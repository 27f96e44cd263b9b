"""Lowerings of `kernel.Kernel`.

Kernels that reduce rows become a shader (`shader`); maps a shader (`maps`), a part of another kernel (`hooks`) or loops
for Numba (`loops`). Both become arrays of NumPy and JAX (`arrays`).
"""
